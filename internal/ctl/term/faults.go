package term

import "github.com/weir-edge/weir/pkg/field"

// Problem is one fault of a document.
type Problem struct {
	Path    string `json:"path"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

func Problems(err error) (list []Problem) {
	for _, e := range field.All(err) {
		list = append(list, Problem{e.Name(), e.Line, e.Msg})
	}
	return list
}

// Faults returns the first faults of a file: the cause of hundreds is among them.
func Faults(file string, err error) string {
	return field.All(err).Bounded(20).In(file).Error()
}

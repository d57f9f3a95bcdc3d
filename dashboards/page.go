package dashboards

import (
	"encoding/json"
	"fmt"
	"regexp"
)

// page is a dashboard as Grafana reads it. Tests and QueryAll use it, so that they see what an
// operator sees.
type page struct {
	UID, Title, Description, Refresh string
	Editable                         bool
	SchemaVersion                    int
	Tags                             []string
	Templating                       struct{ List []pageVariable }
	Annotations                      struct{ List []pageAnnotation }
	Panels                           []pagePanel
}

type pageVariable struct {
	Name, Label, Type, AllValue, Definition string
	Datasource                              pageSource
	Refresh                                 int
	Query                                   json.RawMessage
	Current                                 struct{ Value json.RawMessage }
}

type pageAnnotation struct {
	Name, Expr, Step string
	Datasource       pageSource
	Enable           bool
	Target           struct{ Expr string }
}

type pageSource struct{ Type, UID string }

type pagePanel struct {
	ID                       int
	Type, Title, Description string
	Collapsed                bool
	Datasource               pageSource
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct {
		Defaults  struct{ Unit string }
		Overrides []struct {
			Matcher struct{ Options string }
		}
	}
	Targets []pageTarget
	Panels  []pagePanel
}

type pageTarget struct {
	RefID, Expr, LegendFormat, Format string
	Instant                           bool
	Datasource                        pageSource
}

func parsePage(text []byte) (*page, error) {
	var p page
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("dashboard: %w", err)
	}
	return &p, nil
}

// graphs returns the panels that show data. Those in a collapsed row are optional: not
// every site has their metrics.
func (p *page) graphs() (needed, optional []pagePanel) {
	for _, panel := range p.Panels {
		if panel.Type == "row" {
			optional = append(optional, panel.Panels...)
			continue
		}
		needed = append(needed, panel)
	}
	return needed, optional
}

var variableName = regexp.MustCompile(`\$(\w+)`)

// fill substitutes variables, as Grafana does. One without a value is an error.
func fill(expr string, values map[string]string) (string, error) {
	var unknown error
	filled := variableName.ReplaceAllStringFunc(expr, func(name string) string {
		value, ok := values[name[1:]]
		if !ok {
			unknown = fmt.Errorf("no variable %s in %s", name, expr)
		}
		return value
	})
	return filled, unknown
}

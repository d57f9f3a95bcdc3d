// Package kinds knows the kinds of documents: what each contains, and how two of a kind differ.
package kinds

import (
	"fmt"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Acts are acts that leave no document behind, such as resets. They have a history like the
// other kinds.
var Acts = &fleet.Kind{Name: "acts"}

// Clients describes the client lists. Each region's index names its own chunks.
var Clients = &fleet.Kind{
	Name: clientlist.Kind, Path: adminapi.PathClients, Answer: func() fleet.NodeAnswer { return &adminapi.Clients{} }, Longest: consul.MaxDocument,
	Parse: func(data []byte) (any, error) {
		x, err := clientlist.ParseIndex(data)
		if err != nil {
			return nil, err
		}
		return &clientBook{x}, nil
	},
	Back:       func(_, before *fleet.Document, _ time.Time) *fleet.Document { return before },
	Registered: func(n consul.Node) (version, refused string) { return n.ClientsVersion, "" },
	What:       "client networks", Are: "are", Put: "clients block", Did: "changed", Look: "regionctl clients list", Watch: "regionctl clients list",
}

type clientBook struct{ *clientlist.Index }

func (b *clientBook) Compare(running any) Changes {
	fields := func(x *clientBook) []FieldValue {
		return []FieldValue{{"networks, with those that expired", fmt.Sprintf("%d in list %s", x.Count(), x.Version)}}
	}
	before, _ := running.(*clientBook)
	if before == nil {
		before = &clientBook{&clientlist.Index{}}
	}
	return compareFields(fields(before), fields(b))
}

// UpdateFirst is what to do about a node that reads too old a schema.
const UpdateFirst = "update it first"

// Package kinds knows the kinds of documents: what each contains, and how two of a kind differ.
package kinds

import (
	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/fleet"
)

// Acts are acts that leave no document behind, such as resets. They have a history like the
// other kinds.
var Acts = &fleet.Kind{Name: "acts"}

// Clients are client networks. They are not a document, but have a history like the
// other kinds.
var Clients = &fleet.Kind{Name: clientlist.Kind, Path: adminapi.PathClients}

// UpdateFirst is what to do about a node that reads too old a schema.
const UpdateFirst = "update it first"

package ctl

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/sign"
)

const keysHelp = `Keys sign what apply, set and undo publish with --sign KEYFILE. Nodes that have the
public key in documents.verify_keys say whether what they run is signed, and with
documents.require_signed refuse everything else. Drains and client lists are not signed.

A signature covers a document, its kind and the region; that of temporary settings also
covers until when they may last. It does not say that a document is the newest: anyone who can
write to Consul can make any signed version active again, as a rollback does.

A key is an Ed25519 key in a PEM file, so openssl can make one too:

  openssl genpkey -algorithm ed25519 -out ana.pem && chmod 600 ana.pem
  openssl pkey -in ana.pem -pubout -out ana.pem.pub`

func keysCommand(p *command.Program) *cobra.Command {
	c := command.Group("keys", "make and show keys that sign documents", keysHelp)
	generate := command.New("generate KEYFILE", "make a key", `Writes a new private key to KEYFILE, which only its owner can read, and the public key to
KEYFILE.pub. It overwrites neither.`, "  regionctl keys generate ana.pem", func(_ context.Context, args []string) error { return generateKey(p, args[0]) })
	show := command.New("show FILE…", "print the IDs of public keys", `Prints the ID of each public key in the files, as nodes and regionctl name it.`,
		"  regionctl keys show /etc/weir/keys/*.pub", func(_ context.Context, args []string) error { return showKeys(p, args) })
	c.AddCommand(generate, show)
	return c
}

// keyReport is what keys generate prints with -o json.
type keyReport struct {
	ID     string `json:"id"`
	Public string `json:"public,omitempty"`
}

func generateKey(p *command.Program, file string) error {
	id, err := sign.Generate(file, file+".pub")
	if err != nil {
		return term.Misused("%w; name another file", err)
	}
	return p.Show(keyReport{id, file + ".pub"}, func(b *bytes.Buffer, _ term.Style) {
		fmt.Fprintf(b, "key %s: keep %s private, and give %s.pub to the nodes as documents.verify_keys; a router's goes into the topology (topology --help)\n", id, file, file)
	})
}

func showKeys(p *command.Program, files []string) error {
	keys, err := sign.ReadPublic(files)
	if err != nil {
		return term.Misused("%w", err)
	}
	list := []keyReport{}
	for _, id := range slices.Sorted(maps.Keys(keys)) {
		list = append(list, keyReport{ID: id})
	}
	return p.Show(list, func(b *bytes.Buffer, _ term.Style) {
		for _, k := range list {
			b.WriteString(k.ID + "\n")
		}
	})
}

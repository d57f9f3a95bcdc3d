// Command k6 is k6 including this extension, for builds without xk6.
package main

import (
	"go.k6.io/k6/cmd"

	_ "github.com/weir-edge/weir/loadtest/xk6-weir"
)

func main() { cmd.Execute() }

//go:build !race

package across

const race = false

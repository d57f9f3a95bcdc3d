// Package behaviorsim is the corpus that behavior policies are judged on: simulated
// clients, benign and hostile, in virtual time, against the shipped policy, against static
// limits alone, and against a widely published scoring. It holds only tests. With -update
// they write the tables in docs/BEHAVIOR.md.
package behaviorsim

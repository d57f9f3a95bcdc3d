// Package behaviorsim tests behavior policies on simulated clients, benign and hostile, in
// virtual time. It compares the shipped policy, static limits alone, and a widely published
// scoring. It has only tests. With -update they write the tables in docs/CORPUS.md.
package behaviorsim

// Package behaviorsim judges behavior policies by a corpus of simulated clients, benign and
// hostile, in virtual time: the shipped policy, static limits alone, and a widely published
// scoring. It holds only tests. With -update they write the tables in docs/BEHAVIOR.md.
package behaviorsim

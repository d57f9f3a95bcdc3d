// Package spillsim proves in virtual time how overloaded PoPs share their clients: real
// shedders, the real law and the real choice, between simulated origins and resolvers. It
// holds only tests. With -update they write the table in docs/STEERING.md.
package spillsim

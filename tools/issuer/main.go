// Command issuer is an OpenID Connect provider for tests, with three people in memory. It is a
// separate module, so that no other one depends on its library.
//
// It serves until it is stopped.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// people lists who can log in, with their names and groups. Eve's address is not verified.
var people = map[string][]string{"ana": {"leads", "everything else"}, "bob": {"sre"}, "carol": nil, "eve": {"leads"}}

// users implements storage.UserStore.
type users struct{}

// GetUserByID returns one of the people. All of them have the same password.
func (users) GetUserByID(id string) *storage.User {
	if _, known := people[id]; !known {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: "password", Email: id + "@example.com", EmailVerified: id != "eve"}
}

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID(name) }

func (users) ExampleClientID() string { return "service" }

// store adds groups and the address to ID tokens.
type store struct{ *storage.Storage }

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest.
func (s store) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, request op.IDTokenRequest, scopes []string) error {
	id := request.GetSubject()
	info.Email, info.EmailVerified = id+"@example.com", oidc.Bool(id != "eve")
	info.AppendClaims("groups", people[id])
	return s.Storage.SetUserinfoFromRequest(ctx, info, request, scopes)
}

func main() {
	callback := flag.String("callback", "https://weir.example.com/auth/callback", "where the client `weir` is called back")
	listen := flag.String("listen", "127.0.0.1:9998", "where to listen")
	flag.Parse()
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	issuer := "http://" + ln.Addr().String()
	storage.RegisterClients(storage.WebClient("weir", "secret", *callback), storage.WebClient("other", "secret", *callback))
	handler := exampleop.SetupServer(issuer, store{storage.NewStorage(users{})}, slog.New(slog.NewTextHandler(os.Stderr, nil)), false)
	fmt.Fprintln(os.Stderr, http.Serve(ln, handler))
	os.Exit(1)
}

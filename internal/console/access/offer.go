package access

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"github.com/weir-edge/weir/internal/disk"
)

// HeaderToken carries a person's token, which a page of another origin can neither read nor send:
// in each request that changes something, and to a local console in every request.
const HeaderToken = "Weir-Console-Token"

// HeaderTicket carries the ticket of a local console's page.
const HeaderTicket = "Weir-Console-Ticket"

// offer lets the user who started a local console open it.
type offer struct {
	mu          sync.Mutex
	folder, url string
	ticket      string
}

// Offer writes two files that only this user can read, and returns their names: a page that opens
// the console at url, and the token for scripts. Withdraw removes them.
func (a *Access) Offer(url string) (page, token string, err error) {
	a.offer.mu.Lock()
	defer a.offer.mu.Unlock()
	const pattern = "weir-console-"
	if a.offer.folder, err = os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), pattern); err != nil {
		a.offer.folder, err = os.MkdirTemp("", pattern) // such as after su, which keeps the variable
	}
	if err != nil {
		return "", "", err
	}
	a.offer.url = url
	token = filepath.Join(a.offer.folder, "token")
	if err = disk.Replace(token, []byte(a.token("")+"\n")); err == nil {
		page, err = a.offer.write()
	}
	if err != nil {
		_ = os.RemoveAll(a.offer.folder) // the first error counts
	}
	return page, token, err
}

// Withdraw removes the files of Offer.
func (a *Access) Withdraw() error {
	a.offer.mu.Lock()
	defer a.offer.mu.Unlock()
	a.offer.ticket = ""
	return os.RemoveAll(a.offer.folder)
}

// write writes the page with a new ticket. The part of an address after # is neither sent nor
// visible in the list of processes, and cookies would reach the other ports of this host.
func (o *offer) write() (page string, err error) {
	page, o.ticket = filepath.Join(o.folder, "open.html"), rand.Text()
	at := o.url + "/fleet#ticket=" + o.ticket
	text := fmt.Sprintf("<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<meta http-equiv=\"refresh\" content=\"0; url=%s\">\n<title>weir console</title>\n<a href=%q>Open the console</a>\n", at, at)
	return page, disk.Replace(page, []byte(text))
}

// Exchange returns the token for the ticket of the page. The page then gets another.
func (a *Access) Exchange(ticket string) (token string, err error) {
	a.offer.mu.Lock()
	defer a.offer.mu.Unlock()
	if a.offer.ticket == "" || subtle.ConstantTimeCompare([]byte(ticket), []byte(a.offer.ticket)) != 1 {
		return "", closed("this page was used before, or is of another console")
	}
	if _, err := a.offer.write(); err != nil {
		a.Log.Error("the page that opens the console cannot be written; restart it to open it again", "error", err)
	}
	return a.token(""), nil
}

// known reports whether a request to a local console carries its token.
func (a *Access) known(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(HeaderToken)), []byte(a.token(""))) == 1
}

// closed is the Refusal of a local console.
func closed(why string) *Refusal {
	return refusal(http.StatusUnauthorized, ReasonLogin, "%s; open the file that regionctl console named when it started: only the user who started it can read it", why)
}

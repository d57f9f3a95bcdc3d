// Command site checks a built site: each link and anchor within it leads somewhere, no page loads
// anything from elsewhere, and all Markdown became HTML.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: site FOLDER")
		os.Exit(2)
	}
	links, err := check(os.DirFS(os.Args[1]))
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v\nsite: correct the pages in docs/, or tools/site/hook.py\n", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d links within the site lead somewhere\n", os.Args[1], links)
}

// page is what matters about a page.
type page struct {
	ids      []string
	links    []string // within the site, relative to the page
	loads    []string
	policy   string // of what it may load
	leftover string // a line of Markdown
}

var (
	markdown = regexp.MustCompile("^(\\||```|- |[0-9]+\\. |#+ )")
	// imports matches what a style sheet loads from other sites.
	imports = regexp.MustCompile(`(url\(["' ]*|@import ["']?)(https?:)?//[^"')]*`)
)

// check returns the number of links.
func check(site fs.FS) (links int, err error) {
	var faults []error
	pages := map[string]*page{}
	err = fs.WalkDir(site, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".html" && path.Ext(name) != ".css" {
			return err
		}
		text, err := fs.ReadFile(site, name)
		if err != nil {
			return err
		}
		for _, from := range imports.FindAllString(string(text), -1) {
			faults = append(faults, fmt.Errorf("%s: loads %s", name, from))
		}
		if path.Ext(name) == ".html" {
			root, err := html.Parse(strings.NewReader(string(text)))
			if err != nil {
				return err
			}
			pages[name] = &page{}
			pages[name].read(root)
		}
		return nil
	})
	for name, p := range pages {
		links += len(p.links)
		for _, link := range append(p.links, p.loads...) {
			if why := lost(site, pages, name, link); why != "" {
				faults = append(faults, fmt.Errorf("%s: %s: %s", name, link, why))
			}
		}
		if !strings.HasPrefix(p.policy, "default-src 'self'") {
			faults = append(faults, fmt.Errorf("%s: its Content-Security-Policy lets it load from other sites", name))
		}
		if p.leftover != "" {
			faults = append(faults, fmt.Errorf("%s: is not HTML: %s", name, p.leftover))
		}
	}
	if len(pages) == 0 {
		faults = append(faults, errors.New("no page"))
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return links, errors.Join(append(faults, err)...)
}

func (p *page) read(n *html.Node) {
	attributes := map[string]string{}
	for _, a := range n.Attr {
		attributes[a.Key] = a.Val
		switch {
		case a.Key == "id", a.Key == "name" && n.Data == "a":
			p.ids = append(p.ids, a.Val)
		case a.Key == "href" && n.Data == "a":
			if u, err := url.Parse(a.Val); err != nil || u.Scheme == "" {
				p.links = append(p.links, a.Val)
			}
		case a.Key == "href", a.Key == "src", a.Key == "srcset", a.Key == "poster":
			if !strings.HasPrefix(a.Val, "data:") {
				p.loads = append(p.loads, a.Val)
			}
		}
	}
	if attributes["http-equiv"] == "Content-Security-Policy" {
		p.policy = attributes["content"]
	}
	if n.Type == html.TextNode && n.Parent.Data == "p" && n.PrevSibling == nil && markdown.MatchString(n.Data) {
		p.leftover = n.Data
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		p.read(c)
	}
}

// lost returns why a link leads nowhere, or "".
func lost(site fs.FS, pages map[string]*page, from, link string) string {
	u, err := url.Parse(link)
	if err != nil || u.Host != "" || strings.HasPrefix(u.Path, "/") {
		return "is not within the site"
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
	}
	info, err := fs.Stat(site, to)
	if err == nil && info.IsDir() {
		to = path.Join(to, "index.html")
		_, err = fs.Stat(site, to)
	}
	if err != nil {
		return "no such file"
	}
	if p := pages[to]; p != nil && u.Fragment != "" && !slices.Contains(p.ids, u.Fragment) {
		return "no such heading"
	}
	return ""
}

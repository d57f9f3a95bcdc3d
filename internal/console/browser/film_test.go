package browser

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

type frame struct {
	at  time.Time
	png []byte
}

// film records the page's upper part, with a caption below it, until end is called, and saves
// it to the folder WEIR_SCREENSHOTS, if that is set. It plays in real time.
func (c *chromium) film(name string, width, height int, caption func() string) (end func()) {
	folder := os.Getenv("WEIR_SCREENSHOTS")
	if folder == "" {
		return func() {}
	}
	c.dress("light", width+15) // the page leaves room for a scroll bar
	c.eval(`{ const e = document.createElement('div'); e.id = 'caption'; document.body.append(e);
		e.style.cssText = 'position: fixed; z-index: 99; left: 0; right: 0; top: ` + fmt.Sprint(height-44) + `px; height: 44px; padding: 0 24px; font: 15px/44px DejaVu Sans; white-space: pre; color: #fff; background: #1b2326'; }`)
	began, stop, ended := time.Now(), make(chan struct{}), make(chan struct{})
	var frames []frame
	var failed error
	go func() {
		defer close(ended)
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for failed == nil {
			if _, failed = c.run("document.getElementById('caption').textContent = " + literal(fmt.Sprintf("%2.0f s   %s", time.Since(began).Seconds(), caption()))); failed != nil {
				return
			}
			at := time.Now()
			var shot struct{ Data []byte }
			failed = c.try("Page.captureScreenshot", map[string]any{"format": "png", "clip": map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}, &shot)
			frames = append(frames, frame{at, shot.Data})
			select {
			case <-stop:
				frames = append(frames, frame{at: time.Now().Add(3 * time.Second)}) // the last picture stays
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
		require.NoError(c.t, failed)
		movie, err := animate(frames)
		require.NoError(c.t, err)
		require.NoError(c.t, os.MkdirAll(folder, 0o755))
		require.NoError(c.t, os.WriteFile(filepath.Join(folder, name+".gif"), movie, 0o644))
	}
}

// animate encodes frames, the last of which only ends the one before, in their most frequent
// colors. A frame after the first has only the pixels that change.
func animate(frames []frame) ([]byte, error) {
	each := func(do func(i, at int, c color.RGBA)) (size image.Rectangle, err error) {
		for i, f := range frames[:len(frames)-1] {
			p, err := png.Decode(bytes.NewReader(f.png))
			if err != nil {
				return size, err
			}
			rgba := image.NewRGBA(p.Bounds())
			draw.Draw(rgba, rgba.Rect, p, image.Point{}, draw.Src)
			size = rgba.Rect
			for at := range len(rgba.Pix) / 4 {
				do(i, at, color.RGBA{rgba.Pix[4*at] | 3, rgba.Pix[4*at+1] | 3, rgba.Pix[4*at+2] | 3, 255})
			}
		}
		return size, nil
	}
	often := map[color.RGBA]int{}
	size, err := each(func(_, _ int, c color.RGBA) { often[c]++ })
	if err != nil {
		return nil, err
	}
	common := slices.SortedFunc(maps.Keys(often), func(a, b color.RGBA) int { return often[b] - often[a] })
	var colors color.Palette
	for _, c := range common[:min(len(common), 255)] {
		colors = append(colors, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range often {
		index[c] = uint8(colors.Index(c))
	}
	same := uint8(len(colors))
	colors = append(colors, color.RGBA{})
	movie, shown := gif.GIF{}, make([]uint8, size.Dx()*size.Dy())
	for i := range frames[:len(frames)-1] {
		movie.Image = append(movie.Image, image.NewPaletted(size, colors))
		movie.Delay = append(movie.Delay, int(frames[i+1].at.Sub(frames[0].at).Milliseconds()/10-frames[i].at.Sub(frames[0].at).Milliseconds()/10))
		movie.Disposal = append(movie.Disposal, gif.DisposalNone)
	}
	_, _ = each(func(i, at int, c color.RGBA) {
		now := index[c]
		movie.Image[i].Pix[at] = now
		if i > 0 && now == shown[at] {
			movie.Image[i].Pix[at] = same
		}
		shown[at] = now
	})
	var out bytes.Buffer
	err = gif.EncodeAll(&out, &movie)
	return out.Bytes(), err
}

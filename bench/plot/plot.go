// Package plot draws bars as SVG: a picture that can be read in a page of light or
// dark colours, with nothing in it but shapes and text. It knows nothing of what
// the bars mean.
package plot

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Chart is one panel of horizontal bars on a logarithmic scale.
type Chart struct {
	// Title says what is drawn, its unit, and which direction is good.
	Title string
	Bars  []Bar
}

// Bar is one system. Values of zero or less are not drawn.
type Bar struct {
	Label string
	Value float64
	// Text stands behind the bar.
	Text string
	// Ours is drawn in another colour than the rest, and Floor in a quiet one.
	Ours, Floor bool
}

// Measures of the picture, in its own units.
const (
	width     = 760
	labels    = 190 // width of the column of labels
	texts     = 130 // room for the text behind the longest bar
	row       = 26
	bar       = 16
	heading   = 46
	gap       = 18
	textAbove = 13 // from the top of a row to the base line of its text
)

// style takes the colour of text from the scheme that the reader's system asks for.
const style = `text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600}.quiet{fill:#656d76;font-size:11px}` +
	`.grid{stroke:#d0d7de}.bar{fill:#8c959f}.ours{fill:#0969da}.floor{fill:#c4cad1}` +
	`@media (prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#8d96a0}.grid{stroke:#3d444d}.bar{fill:#6e7681}.ours{fill:#4493f8}.floor{fill:#444c56}}`

// Write draws the charts below each other; note is a line at the bottom.
func Write(w io.Writer, charts []Chart, note string) error {
	var b strings.Builder
	y := 0
	for _, c := range charts {
		c.draw(&b, y)
		y += heading + len(c.Bars)*row + gap
	}
	fmt.Fprintf(&b, `<text class="quiet" x="0" y="%d">%s</text>`+"\n", y+textAbove, escape(note))
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img"><style>%s</style>`+"\n%s</svg>\n",
		width, y+row, style, b.String())
	return err
}

func (c Chart) draw(b *strings.Builder, y int) {
	fmt.Fprintf(b, `<text class="title" x="0" y="%d">%s</text>`+"\n", y+textAbove, escape(c.Title))
	low, high := c.decades()
	at := func(v float64) float64 {
		share := (math.Log10(v) - float64(low)) / float64(high-low)
		return labels + share*(width-labels-texts)
	}
	for d := low; d <= high; d++ {
		x := at(math.Pow10(d))
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x, x, y+heading-8, y+heading+len(c.Bars)*row)
		fmt.Fprintf(b, `<text class="quiet" x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x, y+heading-12, strconv.FormatFloat(math.Pow10(d), 'f', -1, 64))
	}
	for i, one := range c.Bars {
		top := y + heading + i*row
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labels-8, top+textAbove, escape(one.Label))
		end := float64(labels)
		if one.Value > 0 {
			end = at(one.Value)
			fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, one.class(), labels, top, end-labels, bar)
		}
		fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", end+6, top+textAbove, escape(one.Text))
	}
}

func (b Bar) class() string {
	switch {
	case b.Ours:
		return "ours"
	case b.Floor:
		return "floor"
	}
	return "bar"
}

// decades are the powers of ten below and above all values, at least one apart.
func (c Chart) decades() (low, high int) {
	first := true
	for _, b := range c.Bars {
		if b.Value <= 0 {
			continue
		}
		exponent := math.Log10(b.Value)
		// A bar at the very beginning of the scale would have no length.
		under, above := int(math.Ceil(exponent))-1, int(math.Ceil(exponent))
		if first {
			low, high, first = under, above, false
		}
		low, high = min(low, under), max(high, above)
	}
	return low, max(high, low+1)
}

// escape makes text of XML.
func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

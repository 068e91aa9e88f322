package plot_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"agentos/bench/plot"
)

// element is what the tests look at of a picture.
type element struct {
	name  string
	attrs map[string]string
	text  string
}

// read draws and reads the picture back.
func read(t *testing.T, note string, charts ...plot.Chart) (all []element) {
	t.Helper()
	var b strings.Builder
	if err := plot.Write(&b, charts, note); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch x := token.(type) {
		case xml.StartElement:
			e := element{name: x.Name.Local, attrs: map[string]string{}}
			for _, a := range x.Attr {
				e.attrs[a.Name.Local] = a.Value
			}
			all = append(all, e)
		case xml.CharData:
			all[len(all)-1].text += string(x)
		}
	}
}

func number(t *testing.T, e element, name string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(e.attrs[name], 64)
	if err != nil {
		t.Fatalf("%s of %+v: %v", name, e, err)
	}
	return f
}

// Texts come back as they were, whatever is in them.
func TestEscaping(t *testing.T) {
	t.Parallel()
	hostile := `</text><script>alert("&")</script> 'x' ÷ <`
	all := read(t, hostile, plot.Chart{Title: hostile, Bars: []plot.Bar{{Label: hostile, Value: 5, Text: hostile}}})
	found := 0
	for _, e := range all {
		if e.name == "script" {
			t.Error("a text became an element")
		}
		if e.name == "text" && strings.TrimRight(e.text, "\n") == hostile {
			found++
		}
	}
	if found != 4 {
		t.Errorf("the text came back %d times, want 4: %+v", found, all)
	}
}

// Ten times as much is one decade longer, wherever on the scale.
func TestLogarithmicBars(t *testing.T) {
	t.Parallel()
	var wide []float64
	var classes []string
	for _, e := range read(t, "", plot.Chart{Bars: []plot.Bar{
		{Label: "a", Value: 2}, {Label: "none"}, {Label: "b", Value: 20, Ours: true}, {Label: "c", Value: 200, Floor: true},
	}}) {
		if e.name == "rect" {
			wide, classes = append(wide, number(t, e, "width")), append(classes, e.attrs["class"])
		}
	}
	if len(wide) != 3 || wide[0] <= 0 {
		t.Fatalf("widths %v", wide)
	}
	if d := (wide[1] - wide[0]) - (wide[2] - wide[1]); d > 0.2 || d < -0.2 {
		t.Errorf("steps of a decade differ: %v", wide)
	}
	if got := strings.Join(classes, " "); got != "bar ours floor" {
		t.Errorf("classes %q", got)
	}
}

// Everything stays inside the picture, from microscopic to huge, and every bar can
// be seen.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, values := range [][]float64{{1}, {10}, {0.001, 12_000}, {99_999, 100_000}, {}, {0}, {3, 4}} {
		c := plot.Chart{Title: "x"}
		for _, v := range values {
			c.Bars = append(c.Bars, plot.Bar{Label: "l", Value: v, Text: "t"})
		}
		all := read(t, "note", c, c)
		width, height := number(t, all[0], "width"), number(t, all[0], "height")
		for _, e := range all[1:] {
			switch e.name {
			case "text":
				if x, y := number(t, e, "x"), number(t, e, "y"); x < 0 || x > width || y < 0 || y > height {
					t.Errorf("%v: %+v is outside", values, e)
				}
			case "rect":
				if w, x := number(t, e, "width"), number(t, e, "x"); w <= 0 || x+w > width {
					t.Errorf("%v: %+v", values, e)
				}
			}
		}
	}
}

// The picture brings everything along and follows the reader's colours.
func TestSelfContained(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := plot.Write(&b, []plot.Chart{{Title: "x", Bars: []plot.Bar{{Value: 1}}}}, ""); err != nil {
		t.Fatal(err)
	}
	svg := strings.Replace(b.String(), `xmlns="http://www.w3.org/2000/svg"`, "", 1)
	for _, word := range []string{"http", "url(", "@import", "@font-face", "href", "<script"} {
		if strings.Contains(svg, word) {
			t.Errorf("the picture has %q", word)
		}
	}
	if !strings.Contains(svg, "prefers-color-scheme:dark") {
		t.Error("the picture has one set of colours")
	}
}

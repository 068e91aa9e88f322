package mcp

import (
	"bytes"
	"encoding/json"

	"github.com/go-json-experiment/json/jsontext"

	"agentos/internal/rawjson"
)

// rewrite returns raw with every string passed through f, which is also told the
// name of the member the string stands in. Numbers are passed too, as text, and
// become strings if f changes them; names are passed without a name. What f
// leaves alone keeps its bytes, but for white space.
func rewrite(raw []byte, f func(name, text string) string) (json.RawMessage, error) {
	w := rewriter{
		dec: jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		f:   f,
	}
	if err := w.value(""); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

type rewriter struct {
	dec *jsontext.Decoder
	out bytes.Buffer
	f   func(name, text string) string
}

func (w *rewriter) value(name string) error {
	if kind := w.dec.PeekKind(); kind == '{' {
		return w.object()
	} else if kind == '[' {
		return w.array(name)
	}
	return w.scalar(name)
}

func (w *rewriter) object() error {
	if _, err := w.dec.ReadToken(); err != nil {
		return err
	}
	w.out.WriteByte('{')
	for i := 0; w.dec.PeekKind() != '}'; i++ {
		if i > 0 {
			w.out.WriteByte(',')
		}
		raw, err := w.dec.ReadValue()
		if err != nil {
			return err
		}
		name, ok := rawjson.Text(raw)
		if clean := w.f("", name); !ok || clean != name {
			w.out.Write(rawjson.Quote(clean))
		} else {
			w.out.Write(raw)
		}
		w.out.WriteByte(':')
		if err := w.value(name); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	_, err := w.dec.ReadToken()
	return err
}

func (w *rewriter) array(name string) error {
	if _, err := w.dec.ReadToken(); err != nil {
		return err
	}
	w.out.WriteByte('[')
	for i := 0; w.dec.PeekKind() != ']'; i++ {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.value(name); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	_, err := w.dec.ReadToken()
	return err
}

func (w *rewriter) scalar(name string) error {
	raw, err := w.dec.ReadValue()
	if err != nil {
		return err
	}
	text := string(raw)
	switch rawjson.Kind(raw) {
	case "string":
		var ok bool
		if text, ok = rawjson.Text(raw); !ok {
			w.out.Write(raw)
			return nil
		}
	case "number":
	default:
		w.out.Write(raw)
		return nil
	}
	if clean := w.f(name, text); clean != text {
		w.out.Write(rawjson.Quote(clean))
		return nil
	}
	w.out.Write(raw)
	return nil
}

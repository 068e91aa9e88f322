package holds

import (
	"encoding/json"
	"testing"
	"time"
)

func TestDifference(t *testing.T) {
	t.Parallel()
	decided := func(h *Hold) {
		h.Items[0].Decision = &Decision{Action: Edit, Data: json.RawMessage(`{"a":1}`), By: "ann", At: opened}
	}
	for name, c := range map[string]struct {
		shown, told func(*Hold)
		want        string
	}{
		"nothing":                {},
		"what only explains":     {shown: func(h *Hold) { h.Intent, h.Items[0].Title, h.Items[0].Reason = "x", "x", "x" }},
		"the same decision":      {shown: decided, told: decided},
		"its place in the world": {shown: func(h *Hold) { h.ExpiresAt = h.ExpiresAt.In(time.FixedZone("x", 3600)) }},

		"id":               {shown: func(h *Hold) { h.ID = "h_1_2" }, want: "its id"},
		"run":              {shown: func(h *Hold) { h.RunID = "r_2" }, want: "its id"},
		"kind":             {shown: func(h *Hold) { h.Kind = OutcomeUnknown }, want: "its kind"},
		"expiry":           {shown: func(h *Hold) { h.ExpiresAt = h.ExpiresAt.Add(time.Millisecond) }, want: "its expiry"},
		"an item less":     {shown: func(h *Hold) { h.Items = h.Items[:1] }, want: "the number of its items"},
		"items exchanged":  {shown: func(h *Hold) { h.Items[0], h.Items[1] = h.Items[1], h.Items[0] }, want: "the id of item call_1"},
		"server":           {shown: func(h *Hold) { h.Items[1].Server = "x" }, want: "the tool of item call_3"},
		"tool":             {shown: func(h *Hold) { h.Items[1].Tool = "x" }, want: "the tool of item call_3"},
		"definition":       {shown: func(h *Hold) { h.Items[1].ToolDigest = "x" }, want: "the tool of item call_3"},
		"a digit":          {shown: func(h *Hold) { h.Items[1].Data = json.RawMessage(`{"order_id":"A-3","n":9007199254740992}`) }, want: "the arguments of item call_3"},
		"spelling":         {shown: func(h *Hold) { h.Items[0].Data = json.RawMessage(`{"order_id": "A-1"}`) }, want: "the arguments of item call_1"},
		"decided only":     {shown: decided, want: "the decision of item call_1"},
		"told only":        {told: decided, want: "the decision of item call_1"},
		"another action":   {shown: decided, told: func(h *Hold) { decided(h); h.Items[0].Decision.Action = Approve }, want: "the decision of item call_1"},
		"another edit":     {shown: decided, told: func(h *Hold) { decided(h); h.Items[0].Decision.Data = json.RawMessage(`{"a":2}`) }, want: "the decision of item call_1"},
		"another decider":  {shown: decided, told: func(h *Hold) { decided(h); h.Items[0].Decision.By = "bob" }, want: "the decision of item call_1"},
		"a decision moved": {shown: decided, told: func(h *Hold) { decided(h); h.Items[0].Decision, h.Items[1].Decision = nil, h.Items[0].Decision }, want: "the decision of item call_1"},
	} {
		shown, told := sample(), sample()
		if c.shown != nil {
			c.shown(&shown)
		}
		if c.told != nil {
			c.told(&told)
		}
		if got := Difference(shown, told); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

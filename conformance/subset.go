package conformance

import (
	"encoding/json"
	"fmt"
	"strconv"

	"agentos/internal/rawjson"
)

// subset returns where got lacks something of want, or "" when got holds all of
// it: objects may have more members, arrays have the same number of elements,
// everything else is equal.
func subset(want, got json.RawMessage) string { return subsetAt("", want, got) }

func subsetAt(path string, want, got json.RawMessage) string {
	kind := rawjson.Kind(want)
	if kind != rawjson.Kind(got) || kind != "object" && kind != "array" {
		if rawjson.Equal(want, got) {
			return ""
		}
		return mismatch(path, want, got)
	}
	if kind == "array" {
		return subsetArray(path, want, got)
	}
	fields, err := rawjson.Fields(want)
	if err != nil {
		return mismatch(path, want, got)
	}
	for _, f := range fields {
		value := rawjson.Get(got, f.Name)
		if value == nil {
			return fmt.Sprintf("%s/%s is missing", path, f.Name)
		}
		if m := subsetAt(path+"/"+f.Name, f.Value, value); m != "" {
			return m
		}
	}
	return ""
}

func subsetArray(path string, want, got json.RawMessage) string {
	wants, err1 := rawjson.Elements(want)
	gots, err2 := rawjson.Elements(got)
	if err1 != nil || err2 != nil || len(wants) != len(gots) {
		return mismatch(path, want, got)
	}
	for i := range wants {
		if m := subsetAt(path+"/"+strconv.Itoa(i), wants[i], gots[i]); m != "" {
			return m
		}
	}
	return ""
}

func mismatch(path string, want, got json.RawMessage) string {
	if path == "" {
		path = "the value"
	}
	return fmt.Sprintf("%s is %s, not %s", path, short(string(got)), short(string(want)))
}

// maxShown bounds values in reports.
const maxShown = 300

func short(s string) string {
	if s == "" {
		return "nothing"
	}
	if r := []rune(s); len(r) > maxShown {
		return string(r[:maxShown]) + "…"
	}
	return s
}

// Package platform owns platform.yaml, the operator's file: what holds for every
// agent of a server, whatever their manifests say. It reads the file as strictly as
// a manifest and reports every fault with its position. It opens no connection.
//
// Each section of the file has a reader that begins in Parse.
package platform

import (
	_ "embed"
	"slices"
	"strconv"

	"agentos/holds/policy"
	"agentos/holds/policyfile"
	"agentos/internal/rawjson"
	"agentos/internal/strictyaml"
)

// maxRules bounds the operator's rules; each is looked at for every call.
const maxRules = 500

// rulePrefix begins the id of every operator's rule. Ids of manifests have no colon
// or begin with what their rule does, so none passes for an operator's.
const rulePrefix = "operator:"

// Config is a checked platform file. The zero value is that of a server without
// one. It is read-only.
type Config struct {
	Policy Policy
}

// Policy are the operator's rules. They apply to every agent beside those of its
// manifest, which can only tighten them: deny wins over ask and ask over allow,
// whoever says so, and reviewers of both must be satisfied.
type Policy struct {
	// Rules have ids that begin with "operator:"; one without an id in the file is
	// numbered by its place, from 1.
	Rules []policy.Rule
	// Digest identifies the rules, "sha256:<hex>", whatever else is in the file and
	// however it is laid out; "" without rules.
	Digest string
}

// Load reads and checks the file at path; for an empty path it returns the zero
// value. The error is of type strictyaml.Errors and holds every problem of the file.
func Load(path string) (Config, error) {
	if path == "" {
		return Config{}, nil
	}
	data, err := strictyaml.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	return Parse(path, data)
}

// Parse checks a platform file. file is its name in messages. The error is of type
// strictyaml.Errors and holds every problem.
func Parse(file string, data []byte) (Config, error) {
	doc, err := strictyaml.Parse(file, data)
	if err != nil {
		return Config{}, err
	}
	var c Config
	o := doc.Root().Object()
	c.Policy = readPolicy(o.Get("policy"))
	o.Close()
	if err := doc.Err(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// readPolicy reads {rules: [...]}, in the syntax of manifests.
func readPolicy(v strictyaml.Value) Policy {
	reader := policyfile.NewReader(strictyaml.Value.String)
	rules := reader.Policy(v, maxRules, func(i int, _ policy.Rule) string { return strconv.Itoa(i + 1) })
	if len(rules) == 0 {
		return Policy{}
	}
	for i := range rules {
		rules[i].ID = rulePrefix + rules[i].ID
	}
	return Policy{Rules: rules, Digest: digest(rules)}
}

// digest covers everything that rules do or say, with defaults filled in.
func digest(rules []policy.Rule) string {
	var parts [][]byte
	for _, r := range rules {
		when := ""
		if r.When != nil {
			when = r.When.String()
		}
		for _, text := range []string{r.ID, string(r.Effect), r.Tool, when, r.Expires.String(), string(r.OnExpire), r.Reason} {
			parts = append(parts, []byte(text))
		}
		reviewers, err := rawjson.Marshal(r.Reviewers)
		if err != nil { // plain structs always encode
			reviewers = []byte(err.Error())
		}
		parts = append(parts, reviewers)
	}
	return rawjson.Digest(parts...)
}

//go:embed platform.schema.json
var schemaJSON []byte

// SchemaJSON returns the JSON Schema (draft 2020-12) of platform.yaml, for editors and
// for `agentos schema platform`. Parse knows exactly the same keys; a test holds them
// together.
func SchemaJSON() []byte { return slices.Clone(schemaJSON) }

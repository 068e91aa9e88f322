package strictyaml

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// converter makes our nodes from the library's, each once, however often an
// alias refers to it.
type converter struct {
	doc   *Document
	done  map[*yaml.Node]*node
	open  map[*yaml.Node]bool
	fatal bool
}

// stop ends the conversion: what follows would be unbounded or meaningless.
func (c *converter) stop(n *node, message string) *node {
	if !c.fatal {
		c.doc.report(n, "", "%s", message)
	}
	c.fatal = true
	return n
}

func (c *converter) node(y *yaml.Node, depth int) *node {
	if y.Kind == yaml.AliasNode {
		return c.alias(y, depth)
	}
	n := &node{line: y.Line, column: y.Column, size: 1, depth: 1}
	if c.fatal {
		return n
	}
	if depth > maxDepth {
		return c.stop(n, "nested too deeply")
	}
	if y.Style&yaml.TaggedStyle != 0 && y.Tag != "!!str" {
		c.doc.report(n, "", "the tag %s is not supported; write the plain value", quote(y.Tag))
	}
	c.open[y] = true
	switch y.Kind {
	case yaml.MappingNode:
		n.kind = mapping
		c.fields(n, y, depth)
	case yaml.SequenceNode:
		n.kind = sequence
		for _, item := range y.Content {
			child := c.node(item, depth+1)
			n.items = append(n.items, child)
			c.grow(n, child)
		}
	case yaml.ScalarNode, yaml.DocumentNode, yaml.AliasNode: // only scalars get here
		n.text = y.Value
		n.plain = y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
		n.resolved = y.Tag
	}
	delete(c.open, y)
	c.done[y] = n
	return n
}

// alias follows an alias to the node it shares.
func (c *converter) alias(y *yaml.Node, depth int) *node {
	here := &node{line: y.Line, column: y.Column, size: 1, depth: 1}
	if c.open[y.Alias] {
		return c.stop(here, "the anchor "+quote(y.Value)+" contains itself")
	}
	n := c.done[y.Alias]
	if n == nil {
		return c.stop(here, "the anchor "+quote(y.Value)+" is not defined before this place")
	}
	if depth+n.depth > maxDepth {
		return c.stop(here, "nested too deeply")
	}
	return n
}

func (c *converter) fields(n *node, y *yaml.Node, depth int) {
	seen := map[string]*node{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := c.node(y.Content[i], depth+1)
		value := c.node(y.Content[i+1], depth+1)
		c.grow(n, key)
		c.grow(n, value)
		if c.fatal {
			return
		}
		if key.kind != scalar {
			c.doc.report(key, "", "a key must be plain text")
			continue
		}
		if key.resolved == "!!merge" {
			c.doc.report(key, "", "merge keys (<<) are not supported; write the keys out, or share a whole value with an anchor")
			continue
		}
		if first := seen[key.text]; first != nil {
			c.doc.report(key, "", "the key %s is already set in line %d", quote(key.text), first.line)
			continue
		}
		seen[key.text] = key
		n.fields = append(n.fields, field{key: key, value: value})
	}
}

// grow adds a child to the expanded size of n.
func (c *converter) grow(n, child *node) {
	n.size += child.size
	n.depth = max(n.depth, child.depth+1)
	if n.size > maxNodes {
		c.stop(n, "too many values, counting what aliases repeat")
	}
}

// maxQuoted bounds what a message repeats of the file.
const maxQuoted = 60

func quote(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if r := []rune(s); len(r) > maxQuoted {
		s = string(r[:maxQuoted]) + "…"
	}
	return `"` + strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`).Replace(s) + `"`
}

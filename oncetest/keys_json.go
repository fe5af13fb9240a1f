package oncetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/oncepipe/oncepipe"
)

// JSONKeyFunc is a function that makes a key of a JSON document, such as the body
// of a webhook, and documents to check it with. Key and Documents are needed.
//
// The rules are those of [KeyFunc], with these differences.
//
//   - field order, whitespace, escapes: a document that was written otherwise, at
//     any depth, has the same key.
//   - metadata: another value outside Identity makes no other key, and documents that
//     have the same values in Identity have one.
//   - distinct: documents whose values in Identity differ have different keys.
//   - identity: another value within Identity makes another key. The rules from
//     "delimiter" to "unicode" put their values into its strings, and "big numbers"
//     into its numbers.
//
// Changed values keep their JSON type, and dates and times stay what they are.
type JSONKeyFunc struct {
	// Key is the function under test. It returns "" for a document that it refuses.
	Key func(doc []byte) string

	// Documents are samples; a few of each kind are enough, since each value of each
	// is changed by itself. Each must have a canonical form (oncepipe.ContentKeyJSON).
	Documents [][]byte

	// Identity names the values that are the identity, as JSON pointers: "/id",
	// "/order/number". An object or array stands for all that is in it. Each must be
	// in at least one document. Default: the whole document; then hostile texts are
	// put into the first four strings of each.
	Identity []string

	// Without names rules that don't hold, on purpose.
	Without []string
}

// JSONKeys is [Keys] for JSON documents.
func JSONKeys(t *testing.T, f JSONKeyFunc) {
	t.Helper()
	c, err := f.checks()
	if err != nil {
		t.Fatal(err)
	}
	c.test(t)
}

// CheckJSONKeys is [CheckKeys] for JSON documents.
func CheckJSONKeys(f JSONKeyFunc) error {
	c, err := f.checks()
	if err != nil {
		return err
	}
	return c.check()
}

var documentRules = []string{"field order", "whitespace", "escapes"}

// keyDocument is one of the documents, read.
type keyDocument struct {
	name     string
	raw      []byte
	root     *jsonValue
	identity string // equal where the values of the identity are
	inside   []jsonLeaf
	outside  []jsonLeaf
}

func (f JSONKeyFunc) checks() (*keyChecks[[]byte], error) {
	switch {
	case f.Key == nil:
		return nil, errors.New("oncetest: JSONKeyFunc without Key")
	case len(f.Documents) == 0:
		return nil, errors.New("oncetest: JSONKeyFunc without Documents")
	}
	docs, err := f.read()
	if err != nil {
		return nil, err
	}
	c := &keyChecks[[]byte]{
		key:     f.Key,
		show:    func(doc []byte) string { return string(doc) },
		compare: slices.Concat(documentRules, messageRules, valueRules),
		without: f.Without,
		absent:  map[string]string{},
	}
	for _, d := range docs {
		c.own = append(c.own, d.message())
	}
	c.cases = sync.OnceValues(func() ([]keyCase[[]byte], error) {
		list := slices.Concat(documentCases(docs), identityCases(docs))
		err := inBubble(func() { list = append(list, f.textCases(c, docs)...) })
		for _, rule := range c.compare {
			if !slices.ContainsFunc(list, func(k keyCase[[]byte]) bool { return k.rule == rule && len(k.messages) > 1 }) && c.absent[rule] == "" {
				c.leaveOut("no value in the documents can be changed for it", rule)
			}
		}
		return list, err
	})
	return c, c.checkWithout()
}

// read parses the documents and sorts their values by what they are part of.
func (f JSONKeyFunc) read() ([]*keyDocument, error) {
	var docs []*keyDocument
	found := map[string]bool{}
	identity := f.Identity
	if len(identity) == 0 {
		identity = []string{""} // in JSON pointers, the whole document
	}
	for i, raw := range f.Documents {
		d := &keyDocument{name: fmt.Sprintf("document %d", i), raw: raw}
		if _, err := oncepipe.ContentKeyJSON(raw); err != nil {
			return nil, fmt.Errorf("oncetest: %s: %w", d.name, err)
		}
		d.root = parseJSON(raw)
		for _, leaf := range d.root.leaves("", nil) {
			if slices.ContainsFunc(identity, func(p string) bool { return leaf.path == p || strings.HasPrefix(leaf.path, p+"/") }) {
				d.inside = append(d.inside, leaf)
			} else {
				d.outside = append(d.outside, leaf)
			}
		}
		for _, path := range identity {
			if v := d.root.at(path); v != nil {
				found[path] = true
				content, err := oncepipe.ContentKeyJSON(jsonStyle{}.write(nil, v))
				if err != nil {
					return nil, fmt.Errorf("oncetest: %s in %s: %w", path, d.name, err)
				}
				d.identity += content
			}
			d.identity += "\n"
		}
		docs = append(docs, d)
	}
	for _, path := range identity {
		if !found[path] {
			return nil, fmt.Errorf("oncetest: Identity names %q, which no document has", path)
		}
	}
	return docs, nil
}

func (d *keyDocument) message() keyMessage[[]byte] {
	return keyMessage[[]byte]{name: func() string { return d.name }, build: func() []byte { return slices.Clone(d.raw) }}
}

// written is the document in another style.
func (d *keyDocument) written(how string, style jsonStyle) keyMessage[[]byte] {
	return keyMessage[[]byte]{
		name: func() string { return d.name + how }, made: true,
		build: func() []byte { return style.write(nil, d.root) },
	}
}

// changed is the document with another value, given as JSON.
func (d *keyDocument) changed(leaf jsonLeaf, value string) keyMessage[[]byte] {
	return d.written(fmt.Sprintf(" with %s = %s", leaf.path, shorten(value, shownValue)), jsonStyle{values: map[*jsonValue]string{leaf.value: value}})
}

// documentCases are those for one document each that is written otherwise.
func documentCases(docs []*keyDocument) []keyCase[[]byte] {
	var list []keyCase[[]byte]
	for _, d := range docs {
		for _, rule := range documentRules {
			k := keyCase[[]byte]{rule: rule, same: true, messages: []keyMessage[[]byte]{d.message()}}
			plain := string(jsonStyle{}.write(nil, d.root))
			for _, style := range jsonStyles[rule] {
				if string(style.write(nil, d.root)) != plain || rule == "whitespace" {
					k.messages = append(k.messages, d.written(", written otherwise", style))
				}
			}
			list = append(list, k)
		}
	}
	return list
}

// identityCases compare documents with each other and with those that have
// another value somewhere.
func identityCases(docs []*keyDocument) []keyCase[[]byte] {
	distinct := keyCase[[]byte]{rule: "distinct"}
	list := make([]keyCase[[]byte], 0, 2*len(docs)+1)
	first := map[string]*keyDocument{}
	for _, d := range docs {
		rest := keyCase[[]byte]{rule: "metadata", same: true, messages: []keyMessage[[]byte]{d.message()}}
		if before, known := first[d.identity]; known {
			rest.messages = append(rest.messages, before.message())
		} else {
			first[d.identity] = d
			distinct.messages = append(distinct.messages, d.message())
		}
		for _, leaf := range d.outside {
			if other, ok := leaf.value.other(); ok {
				rest.messages = append(rest.messages, d.changed(leaf, other))
			}
		}
		within := keyCase[[]byte]{rule: "identity", messages: []keyMessage[[]byte]{d.message()}}
		for _, leaf := range d.inside {
			if other, ok := leaf.value.other(); ok {
				within.messages = append(within.messages, d.changed(leaf, other))
			}
			if leaf.value.isNumber() {
				list = append(list, bigNumbers(d, leaf))
			}
		}
		list = append(list, rest, within)
	}
	return append(list, distinct)
}

func bigNumbers(d *keyDocument, leaf jsonLeaf) keyCase[[]byte] {
	k := keyCase[[]byte]{rule: "big numbers"}
	for _, n := range []string{"0", "4294967296", "9007199254740992", "9007199254740993", "9223372036854775806", "9223372036854775807"} {
		k.messages = append(k.messages, d.changed(leaf, n))
	}
	return k
}

// maxTexts bounds the strings that hostile values are put into where all of a
// document is the identity.
const maxTexts = 4

// textCases put hostile values into the strings of the identity, once for each
// set of fields. A string that the function refuses to find another text in, such
// as a time, keeps its value.
func (f JSONKeyFunc) textCases(c *keyChecks[[]byte], docs []*keyDocument) []keyCase[[]byte] {
	var list []keyCase[[]byte]
	done := map[string]bool{}
	for _, d := range docs {
		var fields []string
		var free []*jsonValue
		for _, leaf := range d.inside {
			if leaf.value.kind != '"' || len(f.Identity) == 0 && len(free) == maxTexts {
				continue
			}
			plain := d.changed(leaf, `"a"`)
			if c.ask(plain, plain.build()).a.key != "" {
				fields, free = append(fields, leaf.path), append(free, leaf.value)
			}
		}
		if shape := strings.Join(fields, "\n"); len(free) > 0 && !done[shape] {
			done[shape] = true
			list = append(list, valueCases(c, keyTemplate[[]byte]{fields: fields, build: func(texts []string) []byte {
				values := map[*jsonValue]string{}
				for i, text := range texts {
					values[free[i]] = string(jsonStyle{}.writeString(nil, text))
				}
				return jsonStyle{values: values}.write(nil, d.root)
			}})...)
		}
	}
	return list
}

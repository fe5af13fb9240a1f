package oncetest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oncepipe/oncepipe"
)

// webhooks are the deliveries that the example program plays.
func webhooks(t *testing.T) [][]byte {
	t.Helper()
	data, err := os.ReadFile("../examples/webhooks/sample.jsonl")
	if err != nil {
		t.Skip("needs a checkout of the whole repository")
	}
	return bytes.Split(bytes.TrimSpace(data), []byte("\n"))
}

const order = `{"id": 17, "shop": {"name": "Ünï/1", "city": "Rome"}, "sent": "2026-01-31T10:00:00Z", "attempt": 1, "paid": true}`

// redelivered is order as it is sent again.
const redelivered = `{"id": 17, "shop": {"name": "Ünï/1", "city": "Rome"}, "sent": "2026-01-31T10:00:05Z", "attempt": 2, "paid": true}`

const otherOrder = `{"id": 18, "shop": {"name": "Ünï/1", "city": "Rome"}, "sent": "2026-01-31T10:00:09Z", "attempt": 1, "paid": false}`

func orders(key func(doc []byte) string) JSONKeyFunc {
	return JSONKeyFunc{
		Key: key, Documents: [][]byte{[]byte(order), []byte(redelivered), []byte(otherOrder)},
		Identity: []string{"/id", "/shop"},
	}
}

type orderDoc struct {
	ID   json.Number                  `json:"id"`
	Shop struct{ Name, City *string } `json:"shop"`
	Sent string                       `json:"sent"`
}

// decoded makes a key function of one for a struct.
func decoded(key func(o orderDoc) string) func(doc []byte) string {
	return func(doc []byte) string {
		var o orderDoc
		if err := json.Unmarshal(doc, &o); err != nil || o.Shop.Name == nil || o.Shop.City == nil {
			return ""
		}
		return key(o)
	}
}

func orderKey(o orderDoc) string { return oncepipe.Key(string(o.ID), *o.Shop.Name, *o.Shop.City) }

func contentKey(doc []byte) string {
	key, err := oncepipe.ContentKeyJSON(doc)
	if err != nil {
		return ""
	}
	return key
}

// looseKey decodes a document as most do.
func looseKey(doc []byte) map[string]any {
	var m map[string]any
	if err := json.Unmarshal(doc, &m); err != nil {
		return nil
	}
	return m
}

func TestKeysJSONBad(t *testing.T) {
	content := func(key func(doc []byte) string) JSONKeyFunc {
		f := orders(key)
		f.Identity = nil
		return f
	}
	rewritten := []string{"field order", "whitespace", "escapes"}
	for _, test := range []struct {
		name string
		f    JSONKeyFunc
		want []string
	}{
		{"bytes", content(func(doc []byte) string { return hashOf(string(doc)) }), rewritten},
		{"compact", content(func(doc []byte) string {
			var b bytes.Buffer
			if err := json.Compact(&b, doc); err != nil {
				return ""
			}
			return b.String()
		}), []string{"field order", "escapes"}},
		{"float64", content(func(doc []byte) string { return fmt.Sprintf("%q", fmt.Sprint(looseKey(doc))) }), []string{"delimiter", "big numbers"}},
		{"everything", orders(contentKey), []string{"metadata"}},
		{"sent", orders(decoded(func(o orderDoc) string { return oncepipe.Key(orderKey(o), o.Sent) })), []string{"metadata"}},
		{"no shop", orders(decoded(func(o orderDoc) string { return string(o.ID) })), []string{
			"identity", "delimiter", "empty part", "big numbers", "truncated", "case", "spaces", "unicode",
		}},
		{"no id", orders(decoded(func(o orderDoc) string { return oncepipe.Key(*o.Shop.Name, *o.Shop.City) })), []string{
			"distinct", "identity", "big numbers",
		}},
		{"joined", orders(decoded(func(o orderDoc) string {
			return strings.Join([]string{string(o.ID), *o.Shop.Name, *o.Shop.City}, ":")
		})), []string{"delimiter"}},
		{"id as float64", orders(decoded(func(o orderDoc) string {
			n, err := o.ID.Float64()
			if err != nil {
				return ""
			}
			return oncepipe.Key(fmt.Sprint(n), *o.Shop.Name, *o.Shop.City)
		})), []string{"big numbers"}},
		{"sorts in place", content(func(doc []byte) string { slices.Sort(doc); return string(doc) }), []string{"read only"}},
		{"found in the text", JSONKeyFunc{Key: func(doc []byte) string {
			return string(regexp.MustCompile(`"id":\d+`).Find(bytes.Replace(doc, []byte(": "), []byte(":"), 1)))
		}, Documents: [][]byte{[]byte(order)}, Identity: []string{"/id"}}, []string{"whitespace", "escapes"}},
		{"first delivery", JSONKeyFunc{Key: func(doc []byte) string {
			m := looseKey(doc)
			return fmt.Sprintf("%s %t", m["id"], m["again"] == nil)
		}, Documents: [][]byte{[]byte(`{"id": "x", "again": null}`), []byte(`{"id": "x", "again": 1}`)}, Identity: []string{"/id"}}, []string{"metadata"}},
		{"cut out of the text", orders(func(doc []byte) string {
			_, rest, _ := bytes.Cut(doc, []byte(`"id": `))
			return string(rest[:bytes.IndexByte(rest, ',')])
		}), []string{"panic"}},
	} {
		t.Run("bad/"+test.name, func(t *testing.T) {
			err := CheckJSONKeys(test.f)
			if got := blamed(err); !slices.Equal(got, test.want) {
				t.Errorf("blamed for %q, want %q\n%v", got, test.want, err)
			}
		})
	}
}

func TestKeysJSONGood(t *testing.T) {
	t.Run("good/ContentKeyJSON", func(t *testing.T) {
		JSONKeys(t, JSONKeyFunc{Key: contentKey, Documents: [][]byte{[]byte(order), []byte(otherOrder), []byte(`[]`), []byte(`"x"`)}})
	})
	t.Run("good/struct", func(t *testing.T) { JSONKeys(t, orders(decoded(orderKey))) })
	t.Run("good/ContentKey", func(t *testing.T) {
		JSONKeys(t, orders(decoded(func(o orderDoc) string {
			key, err := oncepipe.ContentKey([]any{o.ID, o.Shop})
			if err != nil {
				return ""
			}
			return key
		})))
	})
}

// Deliveries as they come: most have fields that others lack.
func TestKeysJSONWebhooks(t *testing.T) {
	id := func(doc []byte) string {
		var e struct{ ID string }
		if err := json.Unmarshal(doc, &e); err != nil {
			return ""
		}
		return e.ID
	}
	t.Run("good/id", func(t *testing.T) {
		JSONKeys(t, JSONKeyFunc{Key: id, Documents: webhooks(t), Identity: []string{"/id"}})
	})
	t.Run("good/content", func(t *testing.T) { JSONKeys(t, JSONKeyFunc{Key: contentKey, Documents: webhooks(t)}) })
	for _, test := range []struct {
		name string
		f    JSONKeyFunc
		want []string
	}{
		{"content, where it is the id", JSONKeyFunc{Key: contentKey, Identity: []string{"/id"}}, []string{"metadata"}},
		{"prefix of the id", JSONKeyFunc{Key: func(doc []byte) string {
			key := id(doc)
			return key[:min(8, len(key))]
		}, Identity: []string{"/id"}}, []string{"distinct", "big numbers", "truncated"}},
		{"event, number and action", JSONKeyFunc{Key: func(doc []byte) string {
			var e struct {
				Event string
				Body  struct {
					Action string
					Number float64
				}
			}
			if err := json.Unmarshal(doc, &e); err != nil {
				return ""
			}
			return fmt.Sprint(cmp.Or(e.Event, "none"), "-", e.Body.Action, "-", e.Body.Number)
		}, Identity: []string{"/event", "/body/action", "/body/number"}}, []string{"delimiter", "big numbers"}},
	} {
		t.Run("bad/"+test.name, func(t *testing.T) {
			test.f.Documents = webhooks(t)
			err := CheckJSONKeys(test.f)
			if got := blamed(err); !slices.Equal(got, test.want) {
				t.Errorf("blamed for %q, want %q\n%v", got, test.want, err)
			}
		})
	}
}

func TestKeysJSONConfig(t *testing.T) {
	good := orders(contentKey)
	for want, spoil := range map[string]func(f *JSONKeyFunc){
		"without Key":       func(f *JSONKeyFunc) { f.Key = nil },
		"without Documents": func(f *JSONKeyFunc) { f.Documents = nil },
		`"/no"`:             func(f *JSONKeyFunc) { f.Identity = []string{"/id", "/no"} },
		"a name occurs":     func(f *JSONKeyFunc) { f.Documents = [][]byte{[]byte(`{"a":1,"a":2}`)} },
		`names "same"`:      func(f *JSONKeyFunc) { f.Without = []string{"same"} },
	} {
		f := good
		spoil(&f)
		if err := CheckJSONKeys(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// Every way to write a document means the same.
func TestKeysJSONStyles(t *testing.T) {
	docs := [][]byte{
		[]byte(order), []byte(` {"a/b":{"~":[1.50,-0,1e3,9007199254740993,null,[],{}]},"😀<":"\u0000\"\\\/\ud83d\ude00 é\u007f"} `),
	}
	docs = append(docs, webhooks(t)...)
	for _, doc := range docs {
		want := contentKey(doc)
		root := parseJSON(doc)
		for rule, styles := range jsonStyles {
			for i, style := range styles {
				out := style.write(nil, root)
				if got := contentKey(out); got != want || want == "" {
					t.Errorf("%s %d makes another document:\n%s\n%s", rule, i, doc, out)
				}
			}
		}
		for _, leaf := range root.leaves("", nil) {
			if root.at(leaf.path) != leaf.value {
				t.Errorf("%q doesn't lead to its value in %s", leaf.path, doc)
			}
			other, ok := leaf.value.other()
			out := jsonStyle{values: map[*jsonValue]string{leaf.value: other}}.write(nil, root)
			if got := contentKey(out); ok && (got == want || got == "") {
				t.Errorf("another %q is none:\n%s\n%s", leaf.path, doc, out)
			}
		}
	}
}

func TestKeysJSONOtherTexts(t *testing.T) {
	for text, want := range map[string]string{
		"2026-03-01T10:00:00Z": "2026-02-28T10:00:00Z",
		"2026-03-01":           "2026-02-28",
		"3f0c-17":              "2f0c-17",
		"opened":               "openeda",
		"":                     "a",
	} {
		if got := otherText(text); got != want {
			t.Errorf("otherText(%q) = %q, want %q", text, got, want)
		}
	}
}

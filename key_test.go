package oncepipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// splitKey is the way back that Key's comment describes: since it exists, no two
// lists have one key.
func splitKey(t rapid.TB, key string) []string {
	if key == "%" {
		return nil
	}
	parts := strings.Split(key, "/")
	for i, part := range parts {
		var err error
		if parts[i], err = url.PathUnescape(part); err != nil {
			t.Fatalf("part %d of %q: %v", i, key, err)
		}
	}
	return parts
}

func TestR70_JoinedPartsStayApart(t *testing.T) {
	lists := [][]string{
		{},
		{""},
		{"", ""},
		{"", "", ""},
		{"a"},
		{"a", ""},
		{"", "a"},
		{"%"},
		{"/"},
		{"%", ""},
		{"%2F"},
		{"%25"},
		{"%252F"},
		{"a", "b|c"},
		{"a|b", "c"},
		{"a", "b/c"},
		{"a/b", "c"},
		{"a/b/c"},
		{"a", "b", "c"},
		{"a%2Fb", "c"},
		{"\xff"},
		{"\xfe"},
		{"\ufffd"},
		{"\x00"},
		{"ab", "c"},
		{"a", "bc"},
	}
	seen := map[string][]string{}
	for _, list := range lists {
		key := Key(list...)
		if other, ok := seen[key]; ok {
			t.Errorf("%q and %q have one key %q", list, other, key)
		}
		seen[key] = list
	}
}

func TestKeyGoesBack(t *testing.T) {
	part := rapid.OneOf(rapid.StringOfN(rapid.SampledFrom([]rune("/%25Fa")), 0, 6, -1), rapid.String(),
		rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(part).Draw(t, "parts")
		if back := splitKey(t, Key(parts...)); !slices.Equal(back, parts) {
			t.Fatalf("%q came back as %q", parts, back)
		}
	})
}

func FuzzKeyInjective(f *testing.F) {
	f.Add("a|b/c", "a/b|c", "|")
	f.Add("", "%", "/")
	f.Add("\xff%2F", "\xff/", "")
	f.Add("a,b,,", "a,b,", ",")
	f.Fuzz(func(t *testing.T, a, b, cut string) {
		first, second := strings.Split(a, cut), strings.Split(b, cut)
		one, two := Key(first...), Key(second...)
		if (one == two) != slices.Equal(first, second) {
			t.Fatalf("%q has key %q, %q has key %q", first, one, second, two)
		}
		if back := splitKey(t, one); !slices.Equal(back, first) {
			t.Fatalf("%q came back as %q", first, back)
		}
	})
}

func TestKeyAllocatesItsResultOnly(t *testing.T) {
	tenant, id := strings.Repeat("t", 40), strings.Repeat("7", 40)
	for name, c := range map[string]struct {
		want float64
		key  func() string
	}{
		"several parts":    {1, func() string { return Key("order", tenant, id) }},
		"one part":         {0, func() string { return Key(id) }},
		"short stored key": {0, func() string { return StorageKey(id) }},
	} {
		if n := testing.AllocsPerRun(100, func() { keySink = c.key() }); n != c.want {
			t.Errorf("%s: %v allocations, want %v", name, n, c.want)
		}
	}
}

var keySink string

func TestR76_LongKeysAreHashedNotCut(t *testing.T) {
	shared := strings.Repeat("k", 1024)
	keys := []string{
		"", "k", strings.Repeat("k", 255), strings.Repeat("k", 256), strings.Repeat("日", 85), strings.Repeat("日", 86),
		strings.Repeat("日", 300), strings.Repeat("é", 128), strings.Repeat("\xff", 300), strings.Repeat("x", 10_000),
		shared + "1", shared + "2",
	}
	for _, key := range slices.Clone(keys) {
		keys = append(keys, StorageKey(key)) // as a user's key, the stored form of another
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	seen := map[string]string{}
	for _, key := range keys {
		stored := StorageKey(key)
		if len(stored) > MaxStorageKey {
			t.Errorf("a key of %d bytes is stored in %d", len(key), len(stored))
		}
		if short := len(key) <= 255 && !strings.HasPrefix(key, "~sha256:"); short != (stored == key) {
			t.Errorf("a key of %d bytes is stored as %q", len(key), stored)
		}
		if other, ok := seen[stored]; ok {
			t.Errorf("keys of %d and %d bytes are both stored as %q", len(key), len(other), stored)
		}
		seen[stored] = key
	}
}

func TestR71_EveryDigitCounts(t *testing.T) {
	numbers := []string{"1", "1.0", "1e0", "1E0", "1e+0", "10e-1", "0", "-0", "9007199254740992", "9007199254740993", "9007199254740993.0"}
	seen := map[string]string{}
	for _, n := range numbers {
		key := mustContentKeyJSON(t, n)
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have one key", n, other)
		}
		seen[key] = n
	}
	for _, v := range []any{int64(9007199254740992), uint64(9007199254740993), json.Number("1.0")} {
		if n := seen[mustContentKey(t, v)]; n != fmt.Sprint(v) {
			t.Errorf("the Go value %v has the key of %q", v, n)
		}
	}
}

func TestR71_OrderOfMembersIsNoContentOrderOfElementsIs(t *testing.T) {
	if mustContentKeyJSON(t, `{"a":1,"b":2}`) != mustContentKeyJSON(t, ` {"b": 2, "a": 1} `) {
		t.Error("the order of members changes the key")
	}
	if mustContentKeyJSON(t, `[1,2]`) == mustContentKeyJSON(t, `[2,1]`) {
		t.Error("the order of elements doesn't change the key")
	}
}

func TestR74_OrderOfArgumentsIsNoIdentity(t *testing.T) {
	type args struct {
		ID   int    `json:"id"`
		Name string `json:"name"`
	}
	type reordered struct {
		Name string `json:"name"`
		ID   int    `json:"id"`
	}
	want := mustContentKey(t, args{ID: 7, Name: "<a&b>"})
	for _, same := range []any{
		reordered{ID: 7, Name: "<a&b>"},
		&args{ID: 7, Name: "<a&b>"},
		map[string]any{"name": "<a&b>", "id": 7},
		json.RawMessage(`{"name":"<a\u0026b>","id":7}`), []byte("{\"id\":7,\n\"name\":\"<a&b>\"}"),
	} {
		if got := mustContentKey(t, same); got != want {
			t.Errorf("%T has another key", same)
		}
	}
}

func TestR78_GoldenKeysV1(t *testing.T) {
	data, err := os.ReadFile("testdata/keys_v1.json")
	if err != nil {
		t.Fatal(err)
	}
	type vector struct {
		Parts          []string // to join, each a Go string literal without its quotes
		JSON           string
		Text           string // to store, Times times
		Times          int
		Key, Canonical string // what to expect
	}
	var golden struct {
		Format                int
		Key, Content, Storage []vector
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	if golden.Format != KeyFormat || len(golden.Key) == 0 || len(golden.Content) == 0 || len(golden.Storage) == 0 {
		t.Fatalf("the golden keys have format %d, the code %d, or a part of them is missing", golden.Format, KeyFormat)
	}
	literal := func(s string) string {
		text, err := strconv.Unquote(`"` + s + `"`)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		return text
	}
	check := func(what any, got, want string) {
		if got != want {
			t.Errorf("%q gives %q, want %q", what, got, want)
		}
	}
	for _, g := range golden.Key {
		var parts []string
		for _, part := range g.Parts {
			parts = append(parts, literal(part))
		}
		check(parts, Key(parts...), literal(g.Key))
	}
	for _, g := range golden.Content {
		check(g.JSON, mustContentKeyJSON(t, g.JSON), g.Key)
		canonical, _ := canonicalJSON([]byte(g.JSON))
		check(g.JSON, string(canonical), g.Canonical)
	}
	for _, g := range golden.Storage {
		check(g.Text, StorageKey(strings.Repeat(g.Text, g.Times)), g.Key)
	}
}

func TestContentKeyJSONRefuses(t *testing.T) {
	for doc, want := range map[string]string{
		``: "", ` `: "", `{`: "", `[1,]`: "", `{"a":1,}`: "", `{a:1}`: "", `01`: "", `+1`: "", `.5`: "", `1.`: "", `1e`: "", `NaN`: "",
		`"\x"`: "", "\"\n\"": "", "\ufeff1": "", `[1 2]`: "", `'a'`: "", `{"a" 1}`: "", `nul`: "", `"\ud83"`: "",
		`{} {}`:                        "after top-level value after ",
		`{"a":1,"a":1}`:                `a name occurs twice at byte 7, in "/a"`,
		`{"x":[0,{"b":1,"\u0062":2}]}`: `a name occurs twice at byte 15, in "/x/1/b"`,
		"{\"a/b\":{\"~\":[\"\xff\"]}}": `invalid UTF-8 at byte 14, in "/a~1b/~0/0"`,
		"{\"\xff\":1}":                 `invalid UTF-8 at byte 2, in ""`,
		"\"\xed\xa0\x80\"":             `invalid UTF-8 at byte 1`,
		`["\ud800"]`:                   `half a surrogate pair at byte 2, in "/0"`,
		`"\udc00\ud800"`:               `half a surrogate pair at byte 1`,
		`"\ud800\ud800"`:               `half a surrogate pair at byte 1`,
		`"\ud800\n"`:                   `half a surrogate pair at byte 1`,
		`{"\ud800":1}`:                 `half a surrogate pair at byte 2`,
	} {
		key, err := ContentKeyJSON([]byte(doc))
		if key != "" || !errors.Is(err, ErrNotCanonical) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want ErrNotCanonical with %q", doc, key, err, want)
		}
	}
}

func TestContentKeyJSONLimitsDepthAndErrors(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`[{"a":`, n/2) + "1" + strings.Repeat("}]", n/2) }
	mustContentKeyJSON(t, nested(1000))
	name := strings.Repeat("日", 10_000)
	for _, doc := range []string{"[" + nested(1000) + "]", strings.Repeat(`{"`+name+`":`, 10) + "\"\xff\"" + strings.Repeat("}", 10)} {
		if _, err := ContentKeyJSON([]byte(doc)); !errors.Is(err, ErrNotCanonical) || len(err.Error()) > 500 {
			t.Errorf("document of %d bytes: %v", len(doc), err)
		}
	}
}

type (
	keyText   string // writes itself as text, as it is
	keyClean  string // writes itself as the text "clean"
	keySelf   string // writes itself as JSON, through json.Marshal
	keyShadow struct{ Up *keyCircle }
	keyOther  struct{ Up *keyCircle }
	keyCircle struct {
		keyShadow // Up is written by neither: the two are ambiguous
		keyOther
		Name string
	}
	keyPointer struct{ s string }
)

func (k keyText) MarshalText() ([]byte, error)     { return []byte(k), nil }
func (k keyClean) MarshalText() ([]byte, error)    { return []byte("clean"), nil }
func (k keySelf) MarshalJSON() ([]byte, error)     { return json.Marshal(string(k)) }
func (k *keyPointer) MarshalText() ([]byte, error) { return []byte(k.s), nil }

func TestContentKeyRefusesWhatMarshalReplaces(t *testing.T) {
	bad, twins := "a\xff", map[string]int{"\xfe": 1, "\xff": 2}
	for i, v := range []any{
		bad, &bad,
		[]string{"a", bad},
		[1]any{bad},
		twins,
		map[string]any{"a": map[string]string{"b": bad}},
		struct{ Name string }{bad},
		struct {
			Name string `json:",string"`
		}{bad},
		struct {
			Nothing any
			Name    string
		}{nil, bad},
		keyText(bad),
		map[keyText]int{keyText(bad): 1},
		keySelf(bad),
		struct{ K keySelf }{keySelf(bad)},
		&struct{ K keyPointer }{keyPointer{bad}},
		struct{ K *keyPointer }{&keyPointer{bad}},
		json.RawMessage("\"\xff\""),
		struct{ Raw json.RawMessage }{json.RawMessage("\"\xff\"")},
		struct{ Raw json.RawMessage }{json.RawMessage(`"\ud800"`)},
		map[string]any{"a": json.RawMessage(`{"b":1,"b":2}`)},
		struct{ keyShadow }{keyShadow{&keyCircle{Name: bad}}},
		keySelf("\ufffd"),
		math.NaN(), func() {}, make(chan int), json.RawMessage(nil), []byte(nil), []byte("text"),
	} {
		if key, err := ContentKey(v); key != "" || !errors.Is(err, ErrNotCanonical) {
			t.Errorf("value %d, %T: %q, %v; want ErrNotCanonical", i, v, key, err)
		}
	}
	// encoding/json writes the string itself here; its successor asks the method.
	if key, err := ContentKey(map[keyClean]int{keyClean(bad): 1}); err == nil && key != mustContentKeyJSON(t, `{"clean":1}`) {
		t.Error("the key of a map was replaced unseen")
	}
	_, err := ContentKey(struct{ Lines []any }{[]any{1, map[string]string{"note": bad}}})
	if want := `in "/Lines/1/note"`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v doesn't say %s", err, want)
	}
}

func TestContentKeyTakesTheRealReplacementCharacter(t *testing.T) {
	circle := &keyCircle{Name: "\ufffd"}
	circle.keyShadow.Up = circle
	mustContentKey(t, circle)
	want := mustContentKeyJSON(t, "{\"S\":\"\ufffd\"}")
	for i, v := range []any{
		struct{ S string }{"\ufffd"},
		map[string]any{"S": json.RawMessage(`"\ufffd"`)},
		map[keyText]keyText{"S": "\ufffd"},
		struct {
			S      *keyPointer
			Nil    *keyPointer `json:",omitempty"`
			Hidden string      `json:"-"`
			hidden string
		}{&keyPointer{"\ufffd"}, nil, "\xff", "\xff"},
	} {
		if got := mustContentKey(t, v); got != want {
			t.Errorf("value %d, %T has another key", i, v)
		}
	}
	mustContentKey(t, map[string]any{"text": `\ufffd`, "bytes": []byte("\xff")})
}

// decodeJSON reads a document as encoding/json understands it.
func decodeJSON(t rapid.TB, doc []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	return v
}

// renderJSON writes v with the order of members, white space and escapes as rng
// has it.
func renderJSON(v any, rng *rand.Rand) string {
	space := func() string { return []string{"", "", " ", "\n", "\t\r "}[rng.IntN(5)] }
	var kids []string
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		var b strings.Builder
		for _, char := range v {
			if char < ' ' || char == '"' || char == '\\' || char <= 0xffff && rng.IntN(4) == 0 {
				fmt.Fprintf(&b, `\u%04X`, char)
			} else {
				b.WriteRune(char)
			}
		}
		return `"` + b.String() + `"`
	case []any:
		for _, kid := range v {
			kids = append(kids, space()+renderJSON(kid, rng)+space())
		}
		return "[" + space() + strings.Join(kids, ",") + "]"
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			kids = append(kids, space()+renderJSON(name, rng)+space()+":"+space()+renderJSON(v[name], rng)+space())
		}
		rng.Shuffle(len(kids), func(i, j int) { kids[i], kids[j] = kids[j], kids[i] })
		return "{" + space() + strings.Join(kids, ",") + "}"
	}
	return fmt.Sprint(v)
}

var (
	jsonString = regexp.MustCompile(`"(\\.|[^"\\])*"`)
	jsonEscape = regexp.MustCompile(`(?i)\\u(d[89ab]..)(\\ud[c-f]..)?|\\u(d[c-f]..)|\\.`)
)

// refusedJSON tells, by means other than canonicalJSON's, whether a document
// whose syntax and UTF-8 are right has to be refused.
func refusedJSON(t *testing.T, doc []byte) bool {
	for _, m := range jsonEscape.FindAllSubmatch(doc, -1) {
		if m[1] != nil && m[2] == nil || m[3] != nil {
			return true // half a surrogate pair
		}
	}
	bare := jsonString.ReplaceAll(doc, nil)
	level, deepest := 0, 0
	for _, c := range bare {
		switch c {
		case '{', '[':
			level++
			deepest = max(deepest, level)
		case '}', ']':
			level--
		}
	}
	again, err := json.Marshal(decodeJSON(t, doc)) // keeps one of two members with one name
	if err != nil {
		t.Fatal(err)
	}
	again = jsonString.ReplaceAll(again, nil)
	return deepest > maxJSONDepth || bytes.Count(bare, []byte(":")) != bytes.Count(again, []byte(":"))
}

func FuzzContentKey(f *testing.F) {
	for _, doc := range []string{
		`{"b":[1,1.0,-0,1e9],"a":{"c":null,"":"\ud83d\ude42\u0000\/"}}`, `[[[[]]]]`, `{"a":1,"\u0061":2}`, `"\ud800"`, "\"\xff\"",
		`{"a":{"z":1,"y":2},"A":"\\u0041"}`, ` 1 `, `{"a":1}x`, `"\ufffd"`, "{\"\x7f\":\"<>&\u2028\"}", `tru`,
	} {
		f.Add([]byte(doc), uint64(1))
	}
	f.Fuzz(func(t *testing.T, doc []byte, seed uint64) {
		key, err := ContentKeyJSON(doc)
		refuse := !json.Valid(doc) || !utf8.Valid(doc) || refusedJSON(t, doc)
		if refuse != errors.Is(err, ErrNotCanonical) || refuse != (key == "") {
			t.Fatalf("%q: %q, %v; refuse it: %v", doc, key, err, refuse)
		}
		if !refuse {
			checkCanonical(t, doc, rand.New(rand.NewPCG(seed, 0)))
		}
	})
}

// checkCanonical holds the canonical form of an accepted document against what
// encoding/json reads, and against that of another way to write the same.
func checkCanonical(t rapid.TB, doc []byte, rng *rand.Rand) {
	canonical, err := canonicalJSON(doc)
	if err != nil {
		t.Fatalf("%q: %v", doc, err)
	}
	content := decodeJSON(t, doc)
	if !reflect.DeepEqual(decodeJSON(t, canonical), content) {
		t.Fatalf("%q: the canonical form %q says something else", doc, canonical)
	}
	for _, same := range []string{string(canonical), renderJSON(content, rng)} {
		if got, err := canonicalJSON([]byte(same)); err != nil || !bytes.Equal(got, canonical) {
			t.Fatalf("%q has the canonical form %q, and %q has %q (%v)", doc, canonical, same, got, err)
		}
	}
}

func TestContentKeyOfValuesIsThatOfTheirJSON(t *testing.T) {
	leaf := rapid.OneOf(rapid.Map(rapid.String(), toAny), rapid.Map(rapid.Int64(), toAny), rapid.Map(rapid.Float64Range(-1e300, 1e300), toAny),
		rapid.Map(rapid.Bool(), toAny), rapid.Just[any](nil))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return leaf
		}
		inner := value(depth - 1)
		return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(inner, 0, 4), toAny), rapid.Map(rapid.MapOfN(rapid.String(), inner, 0, 4), toAny))
	}
	rapid.Check(t, func(t *rapid.T) {
		v := value(3).Draw(t, "value")
		doc, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		fromValue, err := ContentKey(v)
		if err != nil {
			t.Fatal(err)
		}
		if fromJSON, err := ContentKeyJSON(doc); err != nil || fromJSON != fromValue {
			t.Fatalf("%s: key %s, of the value %s (%v)", doc, fromJSON, fromValue, err)
		}
		checkCanonical(t, doc, rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		if other := []any{v}; mustContentKey(t, other) == fromValue {
			t.Fatalf("%v and %v have one key", v, other)
		}
	})
}

func toAny[T any](v T) any { return v }

func mustContentKey(t rapid.TB, v any) string {
	key, err := ContentKey(v)
	if err != nil {
		t.Fatalf("ContentKey of %T %.200q: %v", v, v, err)
	}
	return key
}

func mustContentKeyJSON(t rapid.TB, doc string) string {
	return mustContentKey(t, json.RawMessage(doc))
}

func BenchmarkKey(b *testing.B) {
	for name, parts := range map[string][]string{
		"one": {"018f3c1e-7f0a-7c52-9b1e-3f6f4e1d2c3b"}, "three": {"orders", "018f3c1e-7f0a-7c52-9b1e-3f6f4e1d2c3b", "42"},
		"escaped": {"orders", "a/b/c%", "42"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keySink = Key(parts...)
			}
		})
	}
}

func BenchmarkContentKey(b *testing.B) {
	type order struct {
		ID, Customer string
		Lines        []int
		Total        float64
	}
	small := order{ID: "42", Customer: "Ann Example", Lines: []int{1, 22, 333}, Total: 29.97}
	doc, _ := json.Marshal(slices.Repeat([]order{small}, 100))
	deep := []byte(strings.Repeat(`{"b":`, 1000) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat(`,"a":1}`, 1000))
	for _, c := range []struct {
		name string
		v    any
	}{{"struct", small}, {"raw8k", json.RawMessage(doc)}, {"hostile1M", json.RawMessage(deep)}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keySink, _ = ContentKey(c.v)
			}
		})
	}
}

package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func good(n int) string { return fmt.Sprintf(`{"id":"k%d","event":"push","body":{"n":%d}}`, n, n) }

// sized is a good line of that many bytes.
func sized(id string, size int) string {
	frame := fmt.Sprintf(`{"id":"%s","event":"push","body":""}`, id)
	return frame[:len(frame)-2] + strings.Repeat("x", size-len(frame)) + frame[len(frame)-2:]
}

func writeInput(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "in.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A bad line is named and is a dead letter; the others go through.
func TestBadLines(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ line, say string }{
		"malformed":      {`{"id":"x",`, "malformed"},
		"not JSON":       {`hello`, "malformed"},
		"two values":     {`{"id":"x"} {"id":"y"}`, "malformed"},
		"array":          {`["x"]`, "malformed"},
		"not UTF-8":      {"{\"id\":\"\xff\"}", "not UTF-8"},
		"id missing":     {`{"event":"push","body":{}}`, "id is missing"},
		"id empty":       {`{"id":"","event":"push","body":{}}`, "id is missing"},
		"null":           {`null`, "id is missing"},
		"id is a number": {`{"id":5,"event":"push","body":{}}`, "malformed"},
		"id used twice":  {`{"id":"k1","event":"push","body":{"n":2}}`, "its id is that of line 1"},
		"huge":           {sized("huge", maxLine+1), "huge: 1048577 bytes"},
		"very huge":      {sized("huge", 20*maxLine), "huge: 20971520 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := writeInput(t, good(1), "", tt.line, good(2), "")
			r := start(t, "-json", "-repeat", "2", "-input", in)
			got := r.expect(t, exitBroken)
			if got.Keys != 4 || got.Effects != 4 || got.Most != 1 || got.Missing != 0 || got.Dead != 1 || !got.Conserved {
				t.Errorf("%+v", got)
			}
			if !strings.Contains(r.stderr, "dead letter: line 3") || !strings.Contains(r.stderr, tt.say) ||
				!strings.Contains(r.stderr, "1 lines of the input were rejected") {
				t.Errorf("stderr:\n%s", r.stderr)
			}
		})
	}
}

func TestOnlyBadLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"x", sized("huge", maxLine+1)} {
		got := start(t, "-json", "-input", writeInput(t, line)).expect(t, exitBroken)
		if got.Keys != 0 || got.Effects != 0 || got.Dead != 1 {
			t.Errorf("%+v", got)
		}
	}
}

func TestLinesThatAreFine(t *testing.T) {
	t.Parallel()
	in := writeInput(
		t, good(1)+"\r", "", "  "+good(2), good(1)+"\r", // the same delivery again
		sized("large", maxLine), `{"id":"bare"}`,
		`{"id":"\u0000 <&> \u2028 '\"; DROP TABLE effects","event":"e","body":null}`,
		fmt.Sprintf(`{"id":%q,"body":[]}`, strings.Repeat("long", 1000)), good(3),
	)
	for _, repeat := range []int{1, 3} {
		r := start(t, "-json", "-input", in, "-dup", "1", "-timeout", "2s", "-repeat", fmt.Sprint(repeat)).expect(t, exitOK)
		r.once(t, repeat*7)
	}
}

func TestFilesThatAreNot(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"no input":        {"-input", filepath.Join(t.TempDir(), "none")},
		"directory":       {"-input", t.TempDir()},
		"empty input":     {"-input", writeInput(t)},
		"blank input":     {"-input", writeInput(t, "", " ", "")},
		"db elsewhere":    {"-db", filepath.Join(t.TempDir(), "no", "such", "dir")},
		"db is something": {"-db", writeInput(t, strings.Repeat("not a database\n", 1000))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, args...)
			r.expect(t, exitBroken)
			if !strings.HasPrefix(r.stderr, "webhooks: ") || r.stdout != "" {
				t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
			}
		})
	}
}

func TestWrongFlags(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{
		"-nope", "stray", "-dup 1.1", "-dup -0.1", "-dup NaN", "-dup x", "-fail 2", "-fail NaN", "-timeout 0s",
		"-timeout -1s", "-timeout 5", "-workers 0", "-buffer -1", "-repeat 0", "-seed -1", "-crash-after 1.5",
		"-crash-after -1", "-json=maybe", "-input",
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			r := start(t, strings.Fields(flags)...)
			r.expect(t, exitUsage)
			if !strings.Contains(r.stderr, "Usage") || r.stdout != "" {
				t.Errorf("stdout %q, stderr %q", r.stdout, r.stderr)
			}
		})
	}
	start(t, "-h").expect(t, exitOK)
}

func TestAwkwardDatabaseName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db := filepath.Join(dir, "a b?c=d%20#e.db")
	start(t, "-json", "-db", db).expect(t, exitOK).once(t, sampleKeys)
	if _, err := os.Stat(db); err != nil {
		t.Error(err)
	}
}

// The sender sends until it has an answer that is final.
func TestSender(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // a request that was given up may still be at work
	var seen []string
	answers := []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, // until the sender leaves
		func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Retry-After", "60"); w.WriteHeader(503) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(202) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		mu.Lock()
		seen = append(seen, r.Header.Get(lineHeader)+body.String())
		answer := answers[min(len(seen), len(answers))-1]
		mu.Unlock()
		answer(w, r)
	}))
	defer server.Close()
	dead := newDeadLetters()
	s := newSender(server.URL, options{timeout: 2 * time.Second}, dead)
	ok := s.deliver(t.Context(), delivery{line: 7, key: "k", body: []byte("x")}, random(1))
	s.client.CloseIdleConnections()
	mu.Lock()
	defer mu.Unlock()
	if !ok || len(seen) != len(answers) || seen[0] != "7x" || int(s.sent.Load()) != len(answers) || len(dead.all()) > 0 {
		t.Errorf("acknowledged %v, seen %q", ok, seen)
	}
}

// What is refused for good is not sent for ever.
func TestSenderIsRefused(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(413) }))
	defer server.Close()
	dead := newDeadLetters()
	s := newSender(server.URL, options{timeout: time.Second}, dead)
	s.deliver(t.Context(), delivery{line: 7, key: "k"}, random(1))
	s.client.CloseIdleConnections()
	if got := dead.all(); len(got) != 1 || got[0].line != 7 || dead.rejected() != 1 || s.sent.Load() != 1 {
		t.Errorf("%+v after %d", got, s.sent.Load())
	}
}

package oncepipe

import (
	"fmt"
	"strings"
	"sync"
)

// ReturnedItem is an item that was not finished and whose source can't take it
// back.
type ReturnedItem struct {
	Source string
	Key    string // the source's, or else the first that KeyBy or Dedup gave before any stage
	Value  any
	Err    error // why it was not finished
}

// ReturnedError lists the items that could be given back to nobody: their
// source has no Settle. Whoever called Run has them now.
type ReturnedError struct{ Items []ReturnedItem }

// Error names the first few.
func (e *ReturnedError) Error() string {
	return listed(len(e.Items), "items were not finished and can't be given back", func(i int) string {
		it := e.Items[i]
		return fmt.Sprintf("key %q from %s: %v", it.Key, it.Source, it.Err)
	})
}

// AbandonedHandler is a handler that did not return when its context ended.
// Without a key it is a source's Receive, a request to one of the pipeline's stores
// (then of Stage "stores"), or a Dedup whose store took too long to hear of its keys.
type AbandonedHandler struct {
	Stage   string
	Key     string
	Attempt int
}

// AbandonedError names the handlers that Run did not wait for. Their goroutines
// go on until they return; what they return is not heard.
type AbandonedError struct{ Handlers []AbandonedHandler }

// Error names the first few.
func (e *AbandonedError) Error() string {
	return listed(len(e.Handlers), "handlers ignored the end of their context", func(i int) string {
		h := e.Handlers[i]
		return fmt.Sprintf("stage %s, key %q, attempt %d", h.Stage, h.Key, h.Attempt)
	})
}

func listed(n int, what string, line func(int) string) string {
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "oncepipe: %d %s", n, what)
	for i := range min(n, most) {
		b.WriteString("; ")
		b.WriteString(line(i))
	}
	if n > most {
		fmt.Fprintf(&b, "; and %d more", n-most)
	}
	return b.String()
}

// returnedList collects what Run's error lists.
type returnedList struct {
	p     *Pipeline
	mu    sync.Mutex
	items []ReturnedItem
}

func (l *returnedList) add(it ReturnedItem) {
	l.mu.Lock()
	l.items = append(l.items, it)
	full := len(l.items) >= l.p.cfg.MaxReturned
	l.mu.Unlock()
	if full {
		l.p.stop(ErrReturnedFull)
	}
}

func (l *returnedList) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.items) == 0 {
		return nil
	}
	return &ReturnedError{Items: l.items}
}

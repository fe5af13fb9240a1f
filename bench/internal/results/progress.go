package results

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress tells on a line how far a long run is. It may be used concurrently.
type Progress struct {
	w     io.Writer
	what  string
	total int
	start time.Time

	mu   sync.Mutex
	done int
	last time.Time // that something was shown
}

// NewProgress begins to count steps.
func NewProgress(w io.Writer, what string, total int) *Progress {
	return &Progress{w: w, what: what, total: total, start: time.Now()}
}

// Step counts one. Not each is shown.
func (p *Progress) Step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	now := time.Now()
	if p.done < p.total && now.Sub(p.last) < 200*time.Millisecond {
		return
	}
	p.last = now
	left := now.Sub(p.start) / time.Duration(p.done) * time.Duration(max(0, p.total-p.done))
	fmt.Fprintf(p.w, "\r\033[K%s %d/%d, %v left", p.what, p.done, p.total, left.Round(time.Second))
}

// Done ends the line.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, "\r\033[K%s %d/%d in %v\n", p.what, p.done, p.total, time.Since(p.start).Round(100*time.Millisecond))
}

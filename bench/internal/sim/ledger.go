package sim

import (
	"sync"
	"time"
)

// key is the identity of an effect.
type key struct {
	name    string
	first   int // its first message
	effects int
	end     time.Duration // of the first effect
	process int           // that had the first effect
}

// ledger is where the effects are seen. It outlives the processes.
type ledger struct {
	warmup int

	mu                            sync.Mutex
	effects, claim, late, restart int // of measured keys
}

// write is an effect of k that began at began, and is visible now.
func (l *ledger) write(k *key, process int, began, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.effects++
	if k.effects == 1 {
		k.end, k.process = now, process
	}
	if k.first < l.warmup {
		return
	}
	l.effects++
	switch {
	case k.effects == 1:
	case k.process != process:
		l.restart++
	case began < k.end:
		l.claim++
	default:
		l.late++
	}
}

package chain

import "testing"

func BenchmarkChain3(b *testing.B) {
	for name, run := range map[string]func(int){
		"raw":       func(items int) { raw(items, 3, 1) },
		"oncepipe":  func(items int) { pipeline(items, 0, 3, 1) },
		"raw4":      func(items int) { raw(items, 3, 4) },
		"oncepipe4": func(items int) { pipeline(items, 0, 3, 4) },
		"acked":     func(items int) { acked(items, 1) },
		"inline":    func(items int) { pipeline(items, 3, 1, 1) },
	} {
		b.Run(name, func(b *testing.B) { measure(b, run) })
	}
}

func BenchmarkChain1(b *testing.B) {
	b.Run("oncepipe", func(b *testing.B) {
		measure(b, func(items int) { pipeline(items, 0, 1, 1) })
	})
}

func BenchmarkDedup(b *testing.B) {
	for name, guarded := range map[string]bool{"without": false, "with": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for left := b.N; left > 0; left -= len(blob) / 2 {
				deduplicated(min(left, len(blob)/2), guarded)
			}
		})
	}
}

func measure(b *testing.B, run func(int)) {
	b.ReportAllocs()
	b.ResetTimer()
	run(b.N)
}

// The promise of the README: no allocation per hop, at most one per item.
func TestAllocations(t *testing.T) {
	const items = 20_000
	bare := testing.AllocsPerRun(3, func() { raw(items, 3, 1) })
	for stages := range 4 {
		got := (testing.AllocsPerRun(3, func() { pipeline(items, 3, stages, 1) }) - bare) / items
		if limit := 1 + 0.05*float64(stages+1); got > limit {
			t.Errorf("%d stages: %.2f allocations per item, want at most %.2f", stages, got, limit)
		}
	}
}

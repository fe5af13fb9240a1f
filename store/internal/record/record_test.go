package record_test

import (
	"math"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/store/internal/record"
)

func TestMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, 0: 0, 1: 2, time.Millisecond: 2, time.Millisecond + 1: 3, time.Second: 1001,
	} {
		if got := record.Milliseconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
	for _, d := range []time.Duration{math.MaxInt64, math.MinInt64} {
		n := record.Milliseconds(d)
		if d < 0 {
			n = math.MinInt64
		}
		if got := record.Duration(n); (got < 0) != (d < 0) || got.Abs() < math.MaxInt64-time.Second {
			t.Errorf("%v comes back as %v", d, got)
		}
	}
}

func TestText(t *testing.T) {
	if got := record.Text("a\x00b\xffc"); got != "a\ufffdb\ufffdc" {
		t.Errorf("%q", got)
	}
}

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/picture"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

// told is a run of one load and three buffers around B* = 39, in which the
// guards leave these extra effects at the largest.
func told(t *testing.T, none, done, ours int) data {
	t.Helper()
	cfg := flags(t, "-quick", "-workers", "1", "-buffers", "16,64,256", "-loads", "1.05", "-guards", "none,completed-64,ours-64")
	d := data{info: info{Setup: cfg.setup}, rows: map[string][]row{}}
	for _, c := range partOf(t, cfg, "sweep").cells {
		r := newRow(c, sim.Result{Keys: 100, Sends: 100})
		if c.Buffer > cfg.limit() {
			r.Extra = map[sim.Guard]int{sim.None: none, sim.Completed: done, sim.Ours: ours}[c.Guard]
		}
		d.rows["sweep"] = append(d.rows["sweep"], r)
	}
	return d
}

// wants checks that the text has each of these, and none of those that begin with
// an exclamation mark. Where lines end does not matter.
func wants(t *testing.T, text string, list ...string) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ")
	for _, want := range list {
		without, not := strings.CutPrefix(want, "!")
		if strings.Contains(text, without) == not {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

func TestAnswersFollowTheData(t *testing.T) {
	wants(t, told(t, 100, 30, 0).short(), `**Buffer: small, below B\*`, "39 for 1 worker,", "**Guard: `Dedup` suffices",
		"in all 3 cells", "(completed-64) let 30.0 % through", "!**Store", "!A flag at entry", "!too short costs", "!no size helps")
	wants(t, told(t, 0, 0, 0).short(), "**Buffer: this run does not decide it", "**Guard: this run does not decide it", "!let 0")
	wants(t, told(t, 100, 0, 7).short(), "**Guard: this run does not decide it", "14 extra effects", "!suffices", "!let 0")
}

func TestAnswersOfKills(t *testing.T) {
	d := told(t, 100, 30, 0)
	kill := func(g sim.Guard, buffer, again, lost int) {
		r := row{Guard: g, Buffer: buffer, Workers: 1, Load: 1.05, Service: d.Setup.Service, AckDelay: 5 * time.Millisecond, Crash: 1}
		r.Restart, r.Lost = again, lost
		d.rows["crash"] = append(d.rows["crash"], r)
	}
	kill(sim.Entry, 16, 9, 0)
	kill(sim.Entry, 256, 0, 200)
	kill(sim.Ours, 16, 10, 0)
	kill(sim.Ours, 256, 10, 0)
	kill(sim.Store, 16, 1, 0)
	kill(sim.Store, 256, 0, 0)
	wants(t, d.short(), "loses 200 acked keys a kill on average there; with 16 places it loses none and repeats 9.",
		"repeats up to 10 effects on average", "a store at most 1.")
	wants(t, d.aboutKills().markdown(), "measured 10 to 10. The buffer's size does not matter", "200 with B = 256",
		"repeats 9 with B = 16", "at most the one effect that runs; measured at most 1 on average")
	kill(sim.Store, 256, 99, 0)
	wants(t, d.short(), "!**Store")
}

func TestAnswersOfTheBlockedSender(t *testing.T) {
	d := told(t, 100, 30, 0)
	for _, extra := range []int{90, 200} {
		d.rows["push"] = append(d.rows["push"], row{Guard: sim.None, Load: 1.05, Buffer: extra, Push: true, Keys: 100, Extra: extra})
	}
	wants(t, d.short(), "no size helps (90.0 % or more at that load)")
	wants(t, d.aboutPush().markdown(), "between 90.0 % (B = 90) and 200 % (B = 200)", "No size of the buffer helps")
	for i := range d.rows["push"] {
		d.rows["push"][i].Extra = 0
	}
	wants(t, d.short(), "!no size helps")
	wants(t, d.aboutPush().markdown(), "this load shows nothing", "!No size of the buffer helps")
}

func TestWhatIsTold(t *testing.T) {
	for _, c := range []struct {
		measured, predicted float64
		want                bool
	}{{0.5, 0, true}, {0, 0.5, true}, {0.001, 0.026, true}, {0, 0.005, false}, {1, 0.995, false}} {
		if got := (compared{meanP: c.measured, theoryRow: theoryRow{FullP: c.predicted}}).telling(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// No line of the picture rises below B*: the one without a guard has points on both
// sides of it, and the others have a gap.
func TestNoLineRisesBelowTheLimit(t *testing.T) {
	d := told(t, 100, 30, 0)
	for b, extra := range map[int]int{20: 0, 39: 0, 45: 90, 90: 100} {
		d.theory = append(d.theory, theoryRow{row: newRow(d.Setup.cellAt(b, 1.05), sim.Result{Keys: 100, Extra: extra})})
	}
	other := d.Setup.cellAt(42, 0.8)
	d.theory = append(d.theory, theoryRow{row: newRow(other, sim.Result{Keys: 100, Extra: 50})})
	chart := d.sweepChart(1.05, picture.Chart{}, row.extra)
	var got []string
	for _, s := range chart.Series {
		got = append(got, fmt.Sprintf("%s%v%v", s.Name, s.X, s.Y))
	}
	want := []string{
		"none[16 39 45 64 256][0 0 0.9 1 1]", "completed-64[16][0]", "[64 256][0.3 0.3]", "ours-64[16 64 256][0 0 0]", "B* = 39[39 39][0 1]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestBullet(t *testing.T) {
	text := bullet(strings.Repeat("word ", 30) + "0.01 % more")
	if want := "- " + strings.TrimSpace(strings.Repeat("word ", 30)) + "\n  0.01 % more\n"; text != want {
		t.Errorf("%q", text)
	}
	if got := plural(1, "cell") + plural(2, "cell") + counted(1, "key") + counted(0.2, "key"); got != "1 cell2 cells1 key0.2 keys" {
		t.Error(got)
	}
}

// The command at the page's end measures what the page shows, elsewhere.
func TestCommands(t *testing.T) {
	d := told(t, 0, 0, 0)
	d.Command = "go run ./bench/window -real -results docs/results -seed 3"
	if got, want := d.again(), "go run ./bench/window -real -results /tmp/window -seed 3"; got != want {
		t.Error(got)
	}
	wants(t, d.Setup.advise(), "-service 500µs -workers 1 -timeout 20ms -load 0.9", "!-exponential")
}

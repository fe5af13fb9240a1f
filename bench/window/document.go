package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/oncepipe/oncepipe/bench/internal/real"
	"github.com/oncepipe/oncepipe/bench/internal/results"
	"github.com/oncepipe/oncepipe/bench/internal/sim"
)

var resultsFlag = regexp.MustCompile(`--?results[= ]\S+`)

// render writes the pictures and window.md, of the data files in dir alone.
func render(dir results.Dir) error {
	d, err := read(dir)
	if err != nil {
		return err
	}
	if err := d.draw(dir); err != nil {
		return err
	}
	return dir.Write("window.md", []byte(d.document()))
}

func (d data) document() string {
	var b strings.Builder
	b.WriteString("# Which buffer size, which guard, and do I need a store?\n\n")
	b.WriteString(d.Part("short", d.short()) + "\n")
	b.WriteString(image("Extra effects by buffer", "window-duplicates.svg") + "\n\n")
	if len(d.rows["crash"]) > 0 {
		b.WriteString(image("After a kill: what has its effect again, and what is lost", "window-crash.svg") + "\n\n")
	}
	b.WriteString("For your own numbers: `" + d.Setup.advise() + "` ([bench/advise](../../bench/advise)).\n" +
		"Other mechanisms, and what each fault does to them: [mechanisms.md](mechanisms.md).\n\n")
	b.WriteString(d.Header() + "\n")
	for _, s := range []section{
		d.aboutModel(), d.aboutRule(), d.aboutDuplicates(), d.aboutGoodput(), d.aboutSojourn(), d.aboutWindows(),
		d.aboutLRU(), d.aboutKills(), d.aboutPush(), d.aboutRetries(), d.aboutHotKeys(), d.aboutTheory(),
		d.aboutCollapse(), d.aboutRealTime(), d.aboutRepeating(),
	} {
		b.WriteString(s.markdown())
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// advise is the command that advises on what was run, at a load that can last.
func (s setup) advise() string {
	load := nearest(s.Loads, 0.9)
	if load >= 1 {
		load = 0.9
	}
	text := fmt.Sprintf("go run ./bench/advise -service %v -workers %d -timeout %v -load %v", s.Service, s.Workers, s.Timeout, load)
	if s.Exponential {
		text += " -exponential"
	}
	if s.Fail > 0 {
		text += fmt.Sprintf(" -fail %v", s.Fail)
	}
	return text
}

// section is a piece of the document. One without a body is left out: its part of
// the run was cut short.
type section struct {
	title string
	body  []string // paragraphs, tables, pictures; "" is none
}

func (s section) markdown() string {
	var b strings.Builder
	for _, p := range s.body {
		if p = strings.TrimSpace(p); p != "" {
			b.WriteString(p + "\n\n")
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "## " + s.title + "\n\n" + b.String()
}

// about is a section on rows; without rows it is empty.
func about(title string, rows int, body ...string) section {
	if rows == 0 {
		return section{}
	}
	return section{title, body}
}

func image(title, file string) string { return fmt.Sprintf("![%s](%s)", title, file) }

func (d data) aboutModel() section {
	s := d.Setup
	service := "fixed"
	if s.Exponential {
		service = "exponential, on average"
	}
	return section{"What was run", []string{
		fmt.Sprintf(`A sender, a pipeline of this library, an effect, in fake time. Keys arrive at random (Poisson). The pipeline has a
buffer of B places and W = %s; an effect takes s = %s (%s). The sender takes a key for lost when it has no
acknowledgement T = %s after the pipeline took it, and sends it again, before anything new, for as long as it takes. Load is
what arrives over what the workers can do, W/s. A cell is %d keys; the first quarter isn't counted. A call of the store
takes %s.`, plural(s.Workers, "worker"), duration(s.Service), service, duration(s.Timeout), s.Keys, duration(s.Service/10)),
		results.Table([]string{"guard", "what it is"}, [][]string{
			{"none", "every delivery has its effect"},
			{"entry", "a set of keys, marked when a delivery comes in, before the buffer"},
			{"completed-N", "an LRU of N keys that are done, asked and filled by the worker; without a number it forgets nothing"},
			{"ours-N", "`Dedup`: the table of keys in flight, asked before the buffer, and an LRU of N keys that are done"},
			{"store", "`Once` on a store, asked by the worker"},
			{"ours+store-N", "`Dedup` with the store behind it"},
		}),
	}}
}

func (d data) aboutDuplicates() section {
	body := []string{"Extra effects, in % of the keys: 100 % is one effect too many for each key. 0 is none at all."}
	for _, load := range d.loadsHighFirst() {
		if t := d.duplicates(load); len(t.rows) > 0 {
			body = append(body, fmt.Sprintf("At load %v:", load), t.markdown())
		}
	}
	return about("Duplicates, by guard and buffer", len(d.rows["sweep"]), body...)
}

// loadsHighFirst is the load of the pictures, and then the others.
func (d data) loadsHighFirst() []float64 {
	high := d.Setup.highLoad()
	list := []float64{high}
	for _, l := range d.Setup.Loads {
		if l != high {
			list = append(list, l)
		}
	}
	return list
}

func (d data) aboutGoodput() section {
	load := d.Setup.highLoad()
	return about("Goodput", len(d.rows["sweep"]),
		fmt.Sprintf(`Keys that are done for the first time, over what the workers can do, at load %v. A duplicate takes the time of an effect, so
where they are many little is left. A guard at the worker spares the effect, and not the place in the buffer. %s`, load, d.storeGoodput(load)),
		d.goodput(load).markdown(), image("What is left of the capacity", "window-goodput.svg"))
}

// storeGoodput says what the calls of the store cost, where they are what bounds.
func (d data) storeGoodput(load float64) string {
	store, others := 0.0, 0.0
	for _, r := range d.rows["sweep"] {
		switch {
		case r.Load != load:
		case r.Guard == sim.Store:
			store = max(store, r.Goodput)
		case r.Guard != sim.OursStore:
			others = max(others, r.Goodput)
		}
	}
	if store == 0 || store > 0.95*others {
		return ""
	}
	return fmt.Sprintf("The store's\ncolumn is never above %.2f: a worker waits for two calls of it beside each effect.", store)
}

func (d data) aboutSojourn() section {
	load := d.Setup.highLoad()
	return about("How long a key takes", len(d.rows["sweep"]),
		fmt.Sprintf(`From the first delivery to the first acknowledgement, mean and 99 %%, at load %v. A full buffer of B adds up to B·s/W, with the
best guard too: size is waiting.`, load), d.joinedSojourn(load), d.entrySojourn(load),
		d.sojourn(load).markdown(), image("How long a key takes", "window-sojourn.svg"))
}

// joinedSojourn compares the wait in the largest buffer with that of its places.
func (d data) joinedSojourn(load float64) string {
	_, _, largest := d.around()
	ours, ok := d.pick("sweep", func(r row) bool { return r.Guard == sim.Ours && r.Buffer == largest && r.Load == load })
	full := time.Duration(largest) * d.Setup.Service / time.Duration(d.Setup.Workers)
	if !ok || largest <= d.Setup.limit() || ours.Sojourn > full*9/10 || ours.Sends <= ours.Keys+ours.Warmup {
		return ""
	}
	return fmt.Sprintf("With %d that is %s, and %s has a mean of %s: some of the places are taken by copies, which join their first one.",
		largest, millis(full), ours.label(), millis(ours.Sojourn))
}

// entrySojourn says why the flag at entry looks quick.
func (d data) entrySojourn(load float64) string {
	_, _, largest := d.around()
	entry, ok := d.at("sweep", string(sim.Entry), largest, load)
	none, bare := d.at("sweep", string(sim.None), largest, load)
	if !ok || !bare || entry.Sojourn >= none.Sojourn/2 {
		return ""
	}
	return "A guard at entry is quicker only because it acknowledges a copy before the effect has happened."
}

func (d data) aboutWindows() section {
	load := d.Setup.highLoad()
	return about("Three windows", len(d.rows["sweep"]),
		fmt.Sprintf(`A second effect can begin at three moments, and a guard closes one or the other:

- **claim**: while the first one runs. A memory of what is done can't see it.
- **late**: after the first one has ended. Nobody asked, or what was asked had forgotten.
- **crash**: after a kill, by a process that doesn't know what the dead one did. See below.

Extra effects in the claim window / late, at load %v:`, load), d.windows(load).markdown())
}

// again is a command that measures the same, and leaves these files alone.
func (d data) again() string {
	command := resultsFlag.ReplaceAllString(d.Command, "-results /tmp/window")
	if slices.ContainsFunc(d.real, func(r real.Result) bool { return r.Store == "PostgreSQL" }) {
		return "go run ./integration/servers -fsync -- " + command
	}
	return command
}

func (d data) aboutRepeating() section {
	return section{"Repeat it, and read it", []string{
		"```sh\n" + d.again() + "\n```",
		fmt.Sprintf(`On the machine above this took %.0f s for the fake time: %d deliveries, %.0f a second, %d cells at a time. The same seed gives
the same bytes in every %s and picture, on any machine, except for %s.
Other flags (%s) vary the sweep.
With %s and %s the program only makes page and pictures again, of the data files that are there.`,
			d.Seconds, d.Items, d.ItemsPerSecond, d.Procs, "`window*.csv`", "`"+realFile+"`",
			"`-buffers -loads -guards -workers -service -timeout -exponential -push -fail -skew -seed`", "`-render`", "`-results DIR`"),
		`Each line of a CSV is a cell: what it was, its seed, and what came out. ` + "`extra` = `claim` + `late` + `restart`" + ` by the window;
` + "`p_late`" + ` is the share of keys whose first acknowledgement came later than T; ` + "`lost`" + ` are keys that the sender takes
for done and that have no effect; ` + "`collapsed`" + ` says that at the end most keys were sent again. A cell is one run, not a
mean: a share of a percent or less can come out differently with another seed.`,
	}}
}

package main

import (
	"fmt"
	"strings"

	"github.com/oncepipe/oncepipe/bench/internal/results"
)

// measured is chans.json.
type measured struct {
	results.Run
	Rows []row `json:"rows"`
}

// words say what the jobs are.
var words = map[string]string{
	"pipeline/4 workers":       "`Pipeline`, 4 workers, trivial work : the same by hand",
	"chain/5 transducers":      "five transducers on a channel : one loop",
	"put/dropping with room":   "put into a dropping buffer with room : plain send",
	"put/sliding with room":    "put into a sliding buffer with room : plain send",
	"put/dropping when full":   "put into a full dropping buffer : plain send",
	"put/sliding when full":    "put into a full sliding buffer : the same by hand, which takes a value and sends one",
	"put/sliding full : plain": "put into a full sliding buffer : plain send",
	"mult/4 taps":              "`Mult` with 4 taps, buffers of 64 : the same by hand",
	"mult/4 taps unbuffered":   "`Mult` with 4 taps, no buffers : the same by hand",
}

func write(dir results.Dir, m measured) error {
	if err := results.WriteJSON(dir, "chans.json", m); err != nil {
		return err
	}
	return render(dir)
}

// render makes chans.md of chans.json.
func render(dir results.Dir) error {
	m, err := results.ReadJSON[measured](dir, "chans.json")
	if err != nil {
		return err
	}
	var short, long [][]string
	for _, r := range m.Rows {
		text, ok := words[r.Name]
		if !ok {
			return fmt.Errorf("there are no words for %q", r.Name)
		}
		limit, held := fmt.Sprintf("%.1f", r.Limit), "held"
		switch {
		case r.Limit == reported:
			limit, held = "", "only reported"
		case !r.OK:
			held = "**not held**"
		}
		short = append(short, []string{text, fmt.Sprintf("%.2f", r.Ratio), limit, held})
		long = append(long, []string{
			"`" + r.Name + "`", fmt.Sprintf("%.1f", r.Ns), fmt.Sprintf("%.1f", r.HandNs),
			fmt.Sprintf("%.3f", r.Allocs), fmt.Sprintf("%.3f", r.HandAllocs),
		})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# What package chans costs\n\n%s\n"+
		"Beside the same jobs written by hand for the same contract. Each figure is a median of rounds in which both ran, one after the other.\n\n", m.Header())
	b.WriteString(m.Part("short", results.Table([]string{"what", ">ratio", ">limit", ""}, short)))
	fmt.Fprintf(&b, "\nFor an item, by the names that the program prints:\n\n%s",
		results.Table([]string{"job", ">ns", ">by hand", ">allocations", ">by hand"}, long))
	return dir.Write("chans.md", []byte(b.String()))
}

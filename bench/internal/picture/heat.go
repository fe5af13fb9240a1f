package picture

import (
	"bytes"
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Heat is a table whose cells are colored.
type Heat struct {
	Title         string
	Rows, Columns []string
	Cells         [][]HeatCell // by row
}

// HeatCell is a cell: Level 0 is good, 3 bad, -1 not applicable. Lines of the text
// are separated by "\n".
type HeatCell struct {
	Text  string
	Level int
}

const (
	cellWidth, cellHeight = 2.5 * vg.Centimeter, 0.95 * vg.Centimeter
	rowLabel, columnLabel = 6.5 * vg.Centimeter, 1.6 * vg.Centimeter
	titleHeight           = 1.0 * vg.Centimeter
)

// SVG draws the table.
func (h Heat) SVG() ([]byte, error) {
	w, t := h.size()
	to := vgsvg.New(w, t)
	if err := h.draw(draw.New(to), t); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err := to.WriteTo(&out)
	return out.Bytes(), err
}

// PNG draws the table for those who can't see an SVG.
func (h Heat) PNG() ([]byte, error) {
	w, t := h.size()
	to := vgimg.PngCanvas{Canvas: vgimg.New(w, t)}
	if err := h.draw(draw.New(to), t); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err := to.WriteTo(&out)
	return out.Bytes(), err
}

func (h Heat) size() (w, t vg.Length) {
	return rowLabel + cellWidth*vg.Length(len(h.Columns)) + 3*vg.Millimeter,
		titleHeight + columnLabel + cellHeight*vg.Length(len(h.Rows)) + 3*vg.Millimeter
}

func (h Heat) draw(to draw.Canvas, top vg.Length) error {
	if len(h.Cells) != len(h.Rows) {
		return fmt.Errorf("picture: %s: %d rows of cells for %d", h.Title, len(h.Cells), len(h.Rows))
	}
	to.SetColor(color.White)
	to.Fill(to.Rectangle.Path())
	write := func(s string, size float64, x, y vg.Length, xAlign text.XAlignment) {
		style := text.Style{Color: color.Black, Font: plot.DefaultFont, XAlign: xAlign, YAlign: text.YCenter, Handler: plot.DefaultTextHandler}
		sans(&style.Font, size)
		to.FillText(style, vg.Point{X: x, Y: y}, s)
	}
	write(h.Title, 12, 3*vg.Millimeter, top-titleHeight/2, text.XLeft)
	for x, name := range h.Columns {
		write(name, 9, rowLabel+cellWidth*(vg.Length(x)+0.5), top-titleHeight-columnLabel/2, text.XCenter)
	}
	for y, name := range h.Rows {
		middle := top - titleHeight - columnLabel - cellHeight*(vg.Length(y)+0.5)
		write(name, 9, 3*vg.Millimeter, middle, text.XLeft)
		if len(h.Cells[y]) != len(h.Columns) {
			return fmt.Errorf("picture: %s, %s: %d cells for %d columns", h.Title, name, len(h.Cells[y]), len(h.Columns))
		}
		for x, c := range h.Cells[y] {
			left := rowLabel + cellWidth*vg.Length(x)
			to.SetColor(shade(c.Level))
			to.Fill(vg.Rectangle{
				Min: vg.Point{X: left + 1, Y: middle - cellHeight/2 + 1},
				Max: vg.Point{X: left + cellWidth - 1, Y: middle + cellHeight/2 - 1},
			}.Path())
			write(c.Text, 8, left+cellWidth/2, middle, text.XCenter)
		}
	}
	return nil
}

func shade(level int) color.Color {
	if level < 0 {
		return none
	}
	return levels[min(level, len(levels)-1)]
}

// Package picture draws what the programs of bench have measured, as SVG. The same
// input gives the same bytes.
package picture

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series is a row of points. It has a line unless it says Dots alone.
type Series struct {
	Name             string
	X, Y             []float64
	Line, Dots, Dash bool
	Color            int // 1 to 8, of line and signs; 0: by the series' place
}

// Chart is a plane with series in it.
type Chart struct {
	Title, X, Y string
	XLog        bool      // x stands at log2(1+x), so that 0 has a place
	YLog        bool      // y stands at log10(y), from YFloor on
	XTicks      []float64 // where x is written; nil: the axis decides
	YFloor      float64   // with YLog, what is below stands at it and is written 0; 0: the least y there is
	Series      []Series
}

const (
	width, height = 17 * vg.Centimeter, 10 * vg.Centimeter
	legendWidth   = 4.6 * vg.Centimeter
)

// SVG draws the chart.
func (c Chart) SVG() ([]byte, error) { return Grid([][]Chart{{c}}) }

// PNG draws the chart for those who can't see an SVG.
func (c Chart) PNG() ([]byte, error) {
	to := vgimg.PngCanvas{Canvas: vgimg.New(width, height)}
	if err := c.draw(draw.New(to)); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_, err := to.WriteTo(&out)
	return out.Bytes(), err
}

// Grid draws charts beside and below each other as one SVG.
func Grid(charts [][]Chart) ([]byte, error) {
	columns := 0
	for _, row := range charts {
		columns = max(columns, len(row))
	}
	to := vgsvg.New(width*vg.Length(columns), height*vg.Length(len(charts)))
	whole := draw.New(to)
	tiles := draw.Tiles{Cols: columns, Rows: len(charts), PadX: 4 * vg.Millimeter, PadY: 4 * vg.Millimeter}
	for y, row := range charts {
		for x, c := range row {
			if err := c.draw(tiles.At(whole, x, y)); err != nil {
				return nil, err
			}
		}
	}
	var out bytes.Buffer
	_, err := to.WriteTo(&out)
	return out.Bytes(), err
}

func (c Chart) draw(to draw.Canvas) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	sans(&p.Title.TextStyle.Font, 12)
	sans(&p.X.Label.TextStyle.Font, 10)
	sans(&p.Y.Label.TextStyle.Font, 10)
	sans(&p.X.Tick.Label.Font, 9)
	sans(&p.Y.Tick.Label.Font, 9)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.XOffs, legend.Padding = true, true, 3*vg.Millimeter, 2*vg.Millimeter
	sans(&legend.TextStyle.Font, 9)
	floor := c.floor()
	for i, s := range c.Series {
		points, err := c.points(s, floor)
		if err != nil {
			return err
		}
		if err := add(p, &legend, s, points, i); err != nil {
			return fmt.Errorf("picture: %s, %s: %w", c.Title, s.Name, err)
		}
	}
	c.ticks(p, floor)
	p.Draw(draw.Crop(to, 2*vg.Millimeter, -legendWidth, 2*vg.Millimeter, -2*vg.Millimeter))
	legend.Draw(draw.Crop(to, to.Rectangle.Size().X-legendWidth, 0, 0, -12*vg.Millimeter))
	return nil
}

// add draws a series with the color and the sign of its number.
func add(p *plot.Plot, legend *plot.Legend, s Series, points plotter.XYs, number int) error {
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	if s.Color > 0 {
		number = s.Color - 1
	}
	color := colors[number%len(colors)]
	line.Color, line.Width = color, vg.Points(1.5)
	if s.Dash {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
	}
	dots.Color, dots.Radius, dots.Shape = color, vg.Points(3), shapes[number%len(shapes)]
	var shown []plot.Thumbnailer
	if s.Line || !s.Dots {
		p.Add(line)
		shown = append(shown, line)
	}
	if s.Dots || !s.Line && !s.Dash {
		p.Add(dots)
		shown = append(shown, dots)
	}
	if s.Name != "" {
		legend.Add(s.Name, shown...)
	}
	return nil
}

func (c Chart) points(s Series, floor float64) (plotter.XYs, error) {
	if len(s.X) != len(s.Y) {
		return nil, fmt.Errorf("picture: %s, %s: %d x for %d y", c.Title, s.Name, len(s.X), len(s.Y))
	}
	points := make(plotter.XYs, len(s.X))
	for i := range s.X {
		points[i] = plotter.XY{X: c.atX(s.X[i]), Y: c.atY(s.Y[i], floor)}
	}
	return points, nil
}

func (c Chart) atX(x float64) float64 {
	if c.XLog {
		return math.Log2(1 + x)
	}
	return x
}

func (c Chart) atY(y, floor float64) float64 {
	if c.YLog {
		return math.Log10(max(y, floor))
	}
	return y
}

// floor is the least y that is drawn on a logarithmic axis.
func (c Chart) floor() float64 {
	if c.YFloor > 0 {
		return c.YFloor
	}
	least := math.Inf(1)
	for _, s := range c.Series {
		for _, y := range s.Y {
			if y > 0 {
				least = min(least, y)
			}
		}
	}
	if math.IsInf(least, 1) {
		return 1
	}
	return math.Pow(10, math.Floor(math.Log10(least)))
}

func (c Chart) ticks(p *plot.Plot, floor float64) {
	if c.XTicks != nil {
		var ticks plot.ConstantTicks
		for _, x := range c.XTicks {
			ticks = append(ticks, plot.Tick{Value: c.atX(x), Label: strconv.FormatFloat(x, 'g', 6, 64)})
		}
		p.X.Tick.Marker = ticks
	}
	if !c.YLog {
		p.Y.Min = min(p.Y.Min, 0)
		return
	}
	low := math.Log10(floor)
	p.Y.Min = low
	p.Y.Max = max(p.Y.Max, low+1)
	ticks := plot.ConstantTicks{}
	for at := math.Ceil(low); at <= p.Y.Max+0.01; at++ {
		label := strconv.FormatFloat(math.Pow(10, at), 'g', 6, 64)
		if at == low && c.YFloor > 0 {
			label = "0"
		}
		ticks = append(ticks, plot.Tick{Value: at, Label: label})
	}
	p.Y.Tick.Marker = ticks
}

func sans(f *font.Font, points float64) {
	f.Variant, f.Size = "Sans", font.Points(points)
}

//go:build unix

package main

import (
	"cmp"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"slices"
)

// maxColors of a picture: lines and letters look the same, and take a third of the room.
const maxColors = 32

// save writes a picture with the colours that cover most of it.
func save(full image.Image, path string) error {
	small := image.NewPaletted(full.Bounds(), commonest(full))
	draw.Draw(small, small.Bounds(), full, full.Bounds().Min, draw.Src)
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	enc := png.Encoder{CompressionLevel: png.BestCompression}
	return errors.Join(enc.Encode(out, small), out.Close())
}

func commonest(m image.Image) color.Palette {
	count := make(map[color.RGBA]int)
	b := m.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[color.RGBAModel.Convert(m.At(x, y)).(color.RGBA)]++
		}
	}
	byCount := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return cmp.Compare(count[b], count[a]) })
	var palette color.Palette
	for _, c := range byCount[:min(maxColors, len(byCount))] {
		palette = append(palette, c)
	}
	return palette
}

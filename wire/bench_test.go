package wire

import "testing"

// BenchmarkDecode reads what comes most, as the load generator and as the Go client write it.
func BenchmarkDecode(b *testing.B) {
	allocate, mark := Params[AllocateParams](), Params[MarkUsedParams]()
	hash := "0x1111111111111111111111111111111111111111111111111111111111111111"
	var f Frame
	for name, decode := range map[string]func() *Error{
		"frame":                func() *Error { return f.Decode(allocateFrame) },
		"allocate by name":     func() *Error { _, err := allocate(allocateByName); return err },
		"allocate by position": func() *Error { _, err := allocate([]byte(`["` + signer + `",1]`)); return err },
		"mark by name": func() *Error {
			_, err := mark([]byte(`{"signer":"` + signer + `","nonce":1234,"txHash":"` + hash + `"}`))
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

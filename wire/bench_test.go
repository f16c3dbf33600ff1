package wire

import "testing"

var (
	allocateByName = []byte(`{"signer":"` + signer + `","count":1,"requestId":"5b6f1c9e-4a6c-4e0e-9d8f-0c1d2e3f4a5b","holdMs":30000}`)
	allocateFrame  = []byte(`{"jsonrpc":"2.0","id":12345,"method":"nonce_allocate","params":` + string(allocateByName) + `}`)
)

func benchmarkAllocate(b *testing.B, params string) {
	b.ReportAllocs()
	data := []byte(params)
	for b.Loop() {
		if _, err := DecodeAllocate(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAllocate(b *testing.B) { benchmarkAllocate(b, string(allocateByName)) }
func BenchmarkDecodeAllocateOneObject(b *testing.B) {
	benchmarkAllocate(b, "["+string(allocateByName)+"]")
}
func BenchmarkDecodeAllocatePositional(b *testing.B) {
	benchmarkAllocate(b, `["`+signer+`","0x1","5b6f1c9e-4a6c-4e0e-9d8f-0c1d2e3f4a5b",30000]`)
}

func BenchmarkDecodeFrame(b *testing.B) {
	b.ReportAllocs()
	var f Frame
	for b.Loop() {
		if err := f.Decode(allocateFrame); err != nil || f.Calls[0].Err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeBatchOf16(b *testing.B) {
	b.ReportAllocs()
	data := []byte{'['}
	for range 16 {
		data = append(append(data, allocateFrame...), ',')
	}
	data[len(data)-1] = ']'
	var f Frame
	for b.Loop() {
		if err := f.Decode(data); err != nil || f.Calls[0].Err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendAllocateResult(b *testing.B) {
	b.ReportAllocs()
	id := []byte("12345")
	result := &AllocateResult{Signer: signer, Nonce: 12345, Attempt: 1, FencingToken: 7, HeldUntil: moment, HoldMs: 30000}
	var dst []byte
	for b.Loop() {
		var err error
		if dst, err = AppendResult(dst[:0], id, result); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendError(b *testing.B) {
	b.ReportAllocs()
	id := []byte("12345")
	busy := Errorf(CodeServerBusy, "the worker is full")
	var dst []byte
	for b.Loop() {
		dst = AppendError(dst[:0], id, busy)
	}
}

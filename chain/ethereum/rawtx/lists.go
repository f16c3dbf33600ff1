package rawtx

import "fmt"

// each calls do for every item of the list that is a field of what stands at a place,
// until there is an error, and returns how many there are. do's error is the rest of a
// sentence about the item.
func each(list item, at place, name string, do func(item) error) (int, error) {
	n := 0
	for rest := list.body; len(rest) > 0; n++ {
		it, after, err := first(rest)
		if err == nil {
			err = do(it)
		}
		if err != nil {
			return 0, refuse(ErrEncoding, place{at.of(name), n}.String(), "%v", err)
		}
		rest = after
	}
	return n, nil
}

// elements reads a list each element of which is a list of the given fields, and calls
// do with a reader of each. do returns the reader's error, or one of its own.
func (f *fields) elements(names []string, do func(*fields) error) {
	rest := f.list().body
	for i := 0; f.err == nil && len(rest) > 0; i++ {
		at := place{f.name(), i}
		it, after, err := first(rest)
		if err != nil {
			f.err = refuse(ErrEncoding, at.String(), "%v", err)
			return
		}
		e, err := open(it, at, names)
		if err == nil {
			err = do(e)
		}
		rest, f.err = after, err
	}
}

// fixed says what is wrong with a string that must have size bytes; nil: nothing.
func fixed(it item, size int) error {
	switch {
	case it.list:
		return fmt.Errorf("must be %d bytes, is a list", size)
	case len(it.body) != size:
		return fmt.Errorf("must be %d bytes, has %d", size, len(it.body))
	}
	return nil
}

var accessNames = []string{"address", "storageKeys"}

// accessList checks the form of an access list (EIP-2930), of which nothing is kept.
func (f *fields) accessList() {
	f.elements(accessNames, func(e *fields) error {
		e.address("")
		keys := e.list()
		if e.err != nil {
			return e.err
		}
		_, err := each(keys, e.at, "storageKeys", func(key item) error { return fixed(key, 32) })
		return err
	})
}

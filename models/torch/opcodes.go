package torch

import "fmt"

// The operations of a pickle (Python's pickletools) that a dictionary of tensors needs.
const (
	opProto          = 0x80
	opFrame          = 0x95
	opStop           = '.'
	opMark           = '('
	opNone           = 'N'
	opTrue           = 0x88
	opFalse          = 0x89
	opInt4           = 'J'
	opInt1           = 'K'
	opInt2           = 'M'
	opLong           = 0x8a
	opFloat          = 'G'
	opText4          = 'X'
	opText1          = 0x8c
	opEmptyTuple     = ')'
	opTuple          = 't'
	opTuple1         = 0x85
	opTuple2         = 0x86
	opTuple3         = 0x87
	opEmptyList      = ']'
	opAppend         = 'a'
	opAppends        = 'e'
	opEmptyDict      = '}'
	opSetItem        = 's'
	opSetItems       = 'u'
	opPut1           = 'q'
	opPut4           = 'r'
	opMemoize        = 0x94
	opGet1           = 'h'
	opGet4           = 'j'
	opGlobal         = 'c'
	opGlobalOfStack  = 0x93
	opCall           = 'R'
	opBuild          = 'b'
	opPersistentLoad = 'Q'
)

// step executes an operation.
func (m *machine) step(op byte) error {
	switch op {
	case opFrame: // only a hint for the size of reads
		_, err := m.bytes(8)
		return err
	case opMark:
		return m.push(mark{})
	case opTuple, opTuple1, opTuple2, opTuple3:
		return m.tuple(op)
	case opEmptyList:
		return m.push(&list{})
	case opAppend:
		return m.add(m.popItems(1))
	case opAppends:
		return m.add(m.popMark())
	case opEmptyDict:
		return m.push(&dict{})
	case opSetItem:
		return m.set(m.popItems(2))
	case opSetItems:
		return m.set(m.popMark())
	case opPut1:
		return m.remember(m.number(1))
	case opPut4:
		return m.remember(m.number(4))
	case opMemoize:
		return m.remember(uint64(len(m.memo)), nil)
	case opGet1:
		return m.recall(m.number(1))
	case opGet4:
		return m.recall(m.number(4))
	case opGlobal, opGlobalOfStack:
		return m.global(op)
	case opCall:
		return m.call()
	case opBuild:
		return m.build()
	case opPersistentLoad:
		return m.load()
	}
	return m.plain(op)
}

// plain pushes a constant.
func (m *machine) plain(op byte) error {
	switch op {
	case opNone:
		return m.push(nil)
	case opTrue, opFalse:
		return m.push(op == opTrue)
	case opEmptyTuple:
		return m.push(tuple{})
	case opInt1:
		return m.integer(1)
	case opInt2:
		return m.integer(2)
	case opInt4:
		return m.integer(4)
	case opLong:
		return m.long()
	case opFloat:
		return m.float()
	case opText1:
		return m.text(1)
	case opText4:
		return m.text(4)
	}
	return fmt.Errorf("operation %#02x (%q) is refused: a file of weights needs no such operation", op, rune(op))
}

// integer pushes an integer of n bytes; four bytes have a sign.
func (m *machine) integer(n uint64) error {
	v, err := m.number(n)
	if err != nil {
		return err
	}
	if n == 4 {
		return m.push(int(int32(v))) //nolint:gosec // the sign is meant
	}
	return m.push(int(v)) //nolint:gosec // at most two bytes
}

// tuple makes a tuple of the values above the last mark, or of one to three.
func (m *machine) tuple(op byte) (err error) {
	var items []any
	if op == opTuple {
		items, err = m.popMark()
	} else {
		items, err = m.popItems(int(op-opTuple1) + 1)
	}
	if err != nil {
		return err
	}
	return m.push(tuple(items))
}

// global reads a name, from the pickle or from the stack.
func (m *machine) global(op byte) error {
	if op == opGlobal {
		module, err := m.line()
		if err != nil {
			return err
		}
		name, err := m.line()
		if err != nil {
			return err
		}
		return m.find(module, name)
	}
	names, err := m.popItems(2)
	if err != nil {
		return err
	}
	module, okModule := names[0].(string)
	name, okName := names[1].(string)
	if !okModule || !okName {
		return fmt.Errorf("expected a name, got %s and %s", kind(names[0]), kind(names[1]))
	}
	return m.find(module, name)
}

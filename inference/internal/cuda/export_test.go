package cuda

import (
	"errors"
	"unsafe"

	"touchline/inference/internal/ort"
)

// trapping is a kernel that ends with an error, in the driver's language for any card.
const trapping = `
.version 7.0
.target sm_80
.address_size 64
.visible .entry lose(.param .u64 unused)
{
	trap;
}
`

// Trap loses the device's context, which all devices on its GPU share, and returns the error.
func Trap(dev *ort.Device) error {
	d, err := NewDriver(dev)
	if err != nil {
		return err
	}
	m, err := d.load([]byte(trapping + "\x00"))
	if err != nil {
		return err
	}
	k, err := m.kernel("lose", 0)
	if err != nil {
		return err
	}
	unused := new(uint64)
	return errors.Join(k.launch(1, 1, 1, false, unsafe.Pointer(unused)), dev.Synchronize())
}

// Package probe reports what ONNX Runtime can run on this machine.
package probe

import (
	"touchline/inference/internal/host"
	"touchline/models"
)

// Hold opens ONNX Runtime and keeps it open until release is called. Engines that open it in the meantime share it.
func Hold(library string) (release func(), err error) {
	m, err := host.Open(library, 0)
	if err != nil {
		return nil, err
	}
	return m.Close, nil
}

// Devices returns the devices that the runtime supports on this machine.
func Devices(library string) ([]models.Device, error) {
	m, err := host.Open(library, 0)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	out := []models.Device{models.DeviceCPU}
	if m.Runtime.HasCUDA() {
		if _, err := m.Device(models.DeviceCUDA); err == nil {
			out = append(out, models.DeviceCUDA)
		}
	}
	return out, nil
}

// GPUs returns the names of the GPUs visible to the runtime, by number.
func GPUs(library string) ([]string, error) {
	m, err := host.Open(library, 0)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.Runtime.GPUs()
}

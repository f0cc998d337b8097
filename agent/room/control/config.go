package control

import (
	"fmt"
	"strconv"

	"touchline/internal/check"
)

// Config sets the participants that may steer from inside the room (RPC and the data topic touchline.control).
type Config struct {
	// Identities that may steer.
	Identities []string `yaml:"identities" env:"IDENTITIES"`
	// RoleAttribute and RoleValue: a participant with this attribute may steer, if it cannot
	// update its own metadata.
	RoleAttribute string `yaml:"role_attribute" env:"ROLE_ATTRIBUTE"`
	RoleValue     string `yaml:"role_value" env:"ROLE_VALUE"`
}

// Validate is Config.Validate for the settings below "agent.control".
func (c Config) Validate() error {
	var s check.Settings
	for _, id := range c.Identities {
		s.That(id != "", "identities", "without empty names", fmt.Sprintf("%q", c.Identities))
	}
	s.That((c.RoleAttribute == "") == (c.RoleValue == ""), "role_value", "set together with role_attribute", strconv.Quote(c.RoleValue))
	return s.Err()
}

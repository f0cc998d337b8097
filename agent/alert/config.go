package alert

import (
	"fmt"

	"touchline/internal/check"
)

// MaxRules is the largest number of rules of a room.
const MaxRules = 16

// Config lists the alert rules that each room begins with.
type Config struct {
	// Rules of a room, at most MaxRules.
	Rules []Rule `yaml:"rules" env:"RULES"`
}

// Rule is a rule of the settings file. In YAML, a plain string is its condition.
type Rule RuleText

// UnmarshalText reads a rule that is only a condition.
func (r *Rule) UnmarshalText(text []byte) error {
	*r = Rule{When: string(text)}
	return nil
}

// Validate checks every rule and reports all that is wrong, joined. Each message
// begins with the YAML path below "agent.alert".
func (c Config) Validate() error {
	var s check.Settings
	s.That(len(c.Rules) <= MaxRules, "rules", fmt.Sprintf("at most %d", MaxRules), len(c.Rules))
	for i, r := range c.Rules {
		_, _, err := parse(RuleText(r))
		s.Part(fmt.Sprintf("rules[%d]", i), err)
	}
	return s.Err()
}

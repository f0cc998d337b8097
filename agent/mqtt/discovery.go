package mqtt

import "touchline/agent/alert"

// entity is the configuration of an entity in Home Assistant's MQTT discovery.
type entity struct {
	Name             string         `json:"name"`
	UniqueID         string         `json:"unique_id"`
	ObjectID         string         `json:"object_id"` // for Home Assistant before 2025.10
	DefaultEntityID  string         `json:"default_entity_id"`
	StateTopic       string         `json:"state_topic,omitempty"`
	ValueTemplate    string         `json:"value_template,omitempty"`
	AttributesTopic  string         `json:"json_attributes_topic,omitempty"`
	EventTypes       []string       `json:"event_types,omitempty"`
	ImageTopic       string         `json:"image_topic,omitempty"`
	ContentType      string         `json:"content_type,omitempty"`
	Icon             string         `json:"icon,omitempty"`
	QoS              *int           `json:"qos,omitempty"`
	Availability     []availability `json:"availability"`
	AvailabilityMode string         `json:"availability_mode"`
	Device           device         `json:"device"`
	Origin           origin         `json:"origin"`
}

type availability struct {
	Topic string `json:"topic"`
}

type device struct {
	Identifiers  []string `json:"identifiers"`
	Name         string   `json:"name"`
	Manufacturer string   `json:"manufacturer"`
	Model        string   `json:"model"`
	Version      string   `json:"sw_version,omitempty"`
}

type origin struct {
	Name    string `json:"name"`
	Version string `json:"sw_version,omitempty"`
}

// configTopic returns the topic of an entity's configuration.
func (o *Output) configTopic(component, object string) string {
	return o.s.opts.Config.Discovery + "/" + component + "/" + o.node + "/" + object + "/config"
}

// ruleEntities returns the topics of a rule's entities.
func (o *Output) ruleEntities(id string) []string {
	id = slug(id)
	return []string{
		o.configTopic("binary_sensor", id+"_alert"), o.configTopic("event", id+"_event"), o.configTopic("image", id+"_frame"),
	}
}

// entity returns an entity of a component with the common fields of the commentator's entities.
func (o *Output) entity(component, object, name, icon string) entity {
	id := o.node + "_" + object
	return entity{
		Name: name, UniqueID: id, ObjectID: id, DefaultEntityID: component + "." + id, Icon: icon,
		Availability: []availability{{o.s.statusTopic()}, {o.base + "/status"}}, AvailabilityMode: "all",
		Device: device{
			Identifiers: []string{o.node}, Name: "Touchline " + o.room, Manufacturer: "Touchline", Model: "Commentator",
			Version: o.s.opts.Version,
		},
		Origin: origin{"Touchline", o.s.opts.Version},
	}
}

// entities returns the configurations of the commentator's entities by topic.
func (o *Output) entities(rules []alert.RuleStatus) map[string]entity {
	out := map[string]entity{}
	qos := 1
	state := o.entity("sensor", "state", "State", "mdi:television-play")
	state.StateTopic, state.AttributesTopic, state.ValueTemplate = o.base+"/state", o.base+"/state", "{{ value_json.chip }}"
	out[o.configTopic("sensor", "state")] = state
	last := o.entity("sensor", "comment", "Last comment", "mdi:comment-text-outline")
	last.StateTopic, last.AttributesTopic = o.base+"/comment", o.base+"/comment"
	last.ValueTemplate = "{{ value_json.text | truncate(255, true, '…', 0) }}" // the longest state
	out[o.configTopic("sensor", "comment")] = last
	types := []string{alert.PhaseNew, alert.PhaseCleared}
	if o.s.opts.Config.Shown {
		types = append(types, alert.PhaseShown)
	}
	for _, r := range rules {
		id, name, topics := slug(r.ID), r.Name, o.ruleEntities(r.ID)
		if name == "" {
			name = r.When
		}
		alert := o.entity("binary_sensor", id+"_alert", name, "mdi:alert")
		alert.StateTopic = o.ruleTopic(r.ID)
		event := o.entity("event", id+"_event", name+" (event)", "mdi:bell-ring")
		event.StateTopic, event.EventTypes, event.QoS = o.alertTopic(r.ID), types, &qos
		frame := o.entity("image", id+"_frame", name+" (frame)", "mdi:image")
		frame.ImageTopic, frame.ContentType = frameTopic(o.alertTopic(r.ID)), "image/jpeg"
		for i, e := range []entity{alert, event, frame} {
			out[topics[i]] = e
		}
	}
	return out
}

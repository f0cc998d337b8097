package sfu

// browsers are the rules by which the server parses the User-Agent of a browser, in the form of github.com/ua-parser/uap-core.
// The 1,300 rules of the server use 12 MB from the first browser on, though it treats only Safari and Firefox, on Linux and on
// Android, specially. The first matching rule applies.
const browsers = `
user_agent_parsers:
- {regex: '(HeadlessChrome)(?:/(\d+)\.(\d+)\.(\d+)|)'}
- {regex: '(?:Mobile|Tablet);.*(Firefox)/(\d+)\.(\d+)', family_replacement: 'Firefox Mobile'}
- {regex: '(FxiOS)/(\d+)\.(\d+)', family_replacement: 'Firefox iOS'}
- {regex: '(Firefox)/(\d+)\.(\d+)'}
- {regex: '(Edg|EdgA|EdgiOS)/(\d+)\.(\d+)\.(\d+)', family_replacement: 'Edge'}
- {regex: '(OPR)/(\d+)\.(\d+)\.(\d+)', family_replacement: 'Opera'}
- {regex: '(CriOS)/(\d+)\.(\d+)\.(\d+)', family_replacement: 'Chrome Mobile iOS'}
- {regex: '(Chrome)/(\d+)\.(\d+)\.(\d+)[\d.]* Mobile', family_replacement: 'Chrome Mobile'}
- {regex: '(Chrome)/(\d+)\.(\d+)\.(\d+)'}
- {regex: '(iPod|iPhone|iPad).+Version/(\d+)\.(\d+)(?:\.(\d+)|).*[ +]Safari', family_replacement: 'Mobile Safari'}
- {regex: '(Version)/(\d+)\.(\d+)(?:\.(\d+)|).*Safari/', family_replacement: 'Safari'}
os_parsers:
- {regex: '(Android)[ \-/](\d+)(?:\.(\d+)|)'}
- {regex: '(Android)'}
- {regex: '(Windows) NT (\d+)\.(\d+)'}
- {regex: '(CPU OS|iPhone OS|CPU iPhone OS)[ +]+(\d+)[_.](\d+)', os_replacement: 'iOS'}
- {regex: '(Mac OS X)[ _](\d+)[_.](\d+)'}
- {regex: '(CrOS) [a-z0-9_]+ (\d+)\.(\d+)', os_replacement: 'Chrome OS'}
- {regex: '(Ubuntu)'}
- {regex: '(Linux)'}
device_parsers: []
`

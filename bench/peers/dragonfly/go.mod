module snowmelt.test/dragonfly

go 1.26.8

require (
	github.com/HuKeping/rbtree v0.0.0-20200208030951-29f0b79e84ed // indirect
	github.com/PuerkitoBio/purell v0.0.0-20170829232023-f619812e3caf // indirect
	github.com/PuerkitoBio/urlesc v0.0.0-20170810143723-de5bf2ad4578 // indirect
	github.com/asaskevich/govalidator v0.0.0-20170903095215-73945b6115bf // indirect
	github.com/beorn7/perks v1.0.0 // indirect
	github.com/cpuguy83/go-md2man v1.0.7 // indirect
	github.com/dragonflyoss/Dragonfly v1.0.6 // indirect
	github.com/emirpasic/gods v1.12.0 // indirect
	github.com/fsnotify/fsnotify v1.4.7 // indirect
	github.com/go-openapi/analysis v0.0.0-20170813233457-8ed83f2ea9f0 // indirect
	github.com/go-openapi/errors v0.0.0-20170426151106-03cfca65330d // indirect
	github.com/go-openapi/jsonpointer v0.0.0-20170102174223-779f45308c19 // indirect
	github.com/go-openapi/jsonreference v0.0.0-20161105162150-36d33bfe519e // indirect
	github.com/go-openapi/loads v0.0.0-20170520182102-a80dea3052f0 // indirect
	github.com/go-openapi/runtime v0.0.0-20170901133030-bf2ff8f71507 // indirect
	github.com/go-openapi/spec v0.0.0-20170811033243-3faa0055dbbf // indirect
	github.com/go-openapi/strfmt v0.0.0-20171222154016-4dd3d302e100 // indirect
	github.com/go-openapi/swag v0.0.0-20170606142751-f3f9494671f9 // indirect
	github.com/go-openapi/validate v0.0.0-20170705144413-8a82927c942c // indirect
	github.com/golang/protobuf v1.3.1 // indirect
	github.com/gorilla/context v0.0.0-20181012153548-51ce91d2eadd // indirect
	github.com/gorilla/mux v1.5.0 // indirect
	github.com/gorilla/schema v1.1.0 // indirect
	github.com/hashicorp/hcl v1.0.0 // indirect
	github.com/inconshreveable/mousetrap v1.0.0 // indirect
	github.com/klauspost/compress v1.4.0 // indirect
	github.com/klauspost/cpuid v0.0.0-20180405133222-e7e905edc00e // indirect
	github.com/konsorten/go-windows-terminal-sequences v1.0.1 // indirect
	github.com/magiconair/properties v1.8.1 // indirect
	github.com/mailru/easyjson v0.0.0-20170902151237-2a92e673c9a6 // indirect
	github.com/matttproud/golang_protobuf_extensions v1.0.1 // indirect
	github.com/mitchellh/mapstructure v1.1.2 // indirect
	github.com/pborman/uuid v0.0.0-20180122190007-c65b2f87fee3 // indirect
	github.com/pelletier/go-toml v1.2.0 // indirect
	github.com/pkg/errors v0.8.0 // indirect
	github.com/prometheus/client_golang v0.9.3 // indirect
	github.com/prometheus/client_model v0.0.0-20190129233127-fd36f4220a90 // indirect
	github.com/prometheus/common v0.4.0 // indirect
	github.com/prometheus/procfs v0.0.0-20190507164030-5867b95ac084 // indirect
	github.com/russross/blackfriday v0.0.0-20171011182219-6d1ef893fcb0 // indirect
	github.com/sirupsen/logrus v1.2.0 // indirect
	github.com/spf13/afero v1.2.2 // indirect
	github.com/spf13/cast v1.3.0 // indirect
	github.com/spf13/cobra v0.0.0-20181021141114-fe5e611709b0 // indirect
	github.com/spf13/jwalterweatherman v1.1.0 // indirect
	github.com/spf13/pflag v1.0.3 // indirect
	github.com/spf13/viper v1.4.0 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	github.com/valyala/fasthttp v1.3.0 // indirect
	github.com/willf/bitset v0.0.0-20190228212526-18bd95f470f9 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/term v0.47.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	gopkg.in/gcfg.v1 v1.2.3 // indirect
	gopkg.in/mgo.v2 v2.0.0-20160818020120-3f83fa500528 // indirect
	gopkg.in/natefinch/lumberjack.v2 v2.0.0 // indirect
	gopkg.in/warnings.v0 v0.1.2 // indirect
	gopkg.in/yaml.v2 v2.2.2 // indirect
)

tool (
	github.com/dragonflyoss/Dragonfly/cmd/dfget
	github.com/dragonflyoss/Dragonfly/cmd/supernode
)

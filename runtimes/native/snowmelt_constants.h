/* Generated from the Rust code by crates/sandbox/src/spawner/c_header.rs. Do not edit. Write it anew:
 * UPDATE_NATIVE=1 cargo test -p snowmelt-sandbox --lib c_header */
#ifndef SNOWMELT_CONSTANTS_H
#define SNOWMELT_CONSTANTS_H

#define SNOWMELT_CONTROL_FD 3
#define SNOWMELT_CHANNEL_FD 3
#define SNOWMELT_KIND_HANDLER 0
#define SNOWMELT_KIND_ZYGOTE 1
#define SNOWMELT_ENTRY_ENVIRONMENT 'e'
#define SNOWMELT_ENTRY_IMPORT_PATH 'p'
#define SNOWMELT_ENTRY_CALL 'c'

#endif

//! Tests of reading traces from CSV, and of the errors that name a line.

use std::time::Duration;

use proptest::prelude::*;
use snowmelt_types::Report;

use crate::{Arrival, Error, Profile, Trace, TraceOrigin};

const TWO: Duration = Duration::from_secs(2);
const SECOND: u64 = 1_000_000_000;
const AZURE: &str = "app,func,end_timestamp,duration\n";
const FAASNET: &str = "__time__,functionName,latency,runtime,memoryMB\n";

fn read(text: impl AsRef<[u8]>) -> Result<Trace, Error> {
    Trace::read("trace.csv", text.as_ref(), TWO)
}

#[test]
fn the_azure_trace_tells_when_calls_end() {
    let trace = read(format!("{AZURE}a,f,10.5,0.5\nb,f,3,2.5\n\na,f,12,1\n")).unwrap();
    assert_eq!(trace.origin, TraceOrigin::Azure2021);
    let names: Vec<_> = trace.functions.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["a/f", "b/f"]);
    let calls: Vec<_> =
        trace.calls.iter().map(|call| (call.at, call.function, call.duration)).collect();
    let half = SECOND / 2;
    assert_eq!(calls, [(0, 1, 5 * half), (19 * half, 0, half), (21 * half, 0, SECOND)]);
}

#[test]
fn calls_that_ran_when_the_trace_began_arrived_before() {
    let trace = read(format!("{AZURE}a,f,1,3\na,g,1,1\n")).unwrap();
    let arrival = |at, duration, function| Arrival { at, duration, function };
    let expected = [arrival(0, 3 * SECOND, 0), arrival(2 * SECOND, SECOND, 1)];
    assert_eq!(trace.calls, expected);
}

#[test]
fn the_trace_of_faasnet_has_starts_and_memory_in_any_order_of_columns() {
    let text = "\u{feff}memoryMB,runtime,functionName,latency,__time__,region\r\n\
                512,python3,\"a, b\",0.25,1620000002,bj\r\n\
                1024,custom,\"say \"\"x\"\"\",1.5,1620000000,sh";
    let trace = read(text).unwrap();
    assert_eq!(
        (trace.origin, trace.recorded.as_slice()),
        (TraceOrigin::FaasNet, &[SECOND / 4, 1_500_000_000][..])
    );
    let functions: Vec<_> = trace
        .functions
        .iter()
        .map(|function| (&*function.name, function.memory.unwrap() >> 20))
        .collect();
    assert_eq!(functions, [("a, b", 512), ("say \"x\"", 1024)]);
    let calls: Vec<_> =
        trace.calls.iter().map(|call| (call.at, call.duration, call.function)).collect();
    assert_eq!(calls, [(0, 2 * SECOND, 1), (2 * SECOND, 2 * SECOND, 0)]);
}

#[test]
fn the_azure_trace_of_2019_has_the_calls_of_each_minute() {
    let text = "HashOwner,HashApp,HashFunction,Trigger,1,2,1440\n\
                o,a,f,http,2,0,1\no,a,g,timer,0,3,0\n";
    let trace = read(text).unwrap();
    assert_eq!((trace.origin, trace.origin.has_durations()), (TraceOrigin::Azure2019, false));
    let names: Vec<_> = trace.functions.iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["a/f", "a/g"]);
    let of = |function: u32| trace.calls.iter().filter(move |call| call.function == function);
    let times: Vec<_> = of(0).map(|call| call.at / SECOND).collect();
    assert_eq!(times, [0, 30, 1439 * 60]);
    let times: Vec<_> = of(1).map(|call| call.at).collect();
    let minute = 60 * SECOND;
    assert!(times.iter().all(|at| (minute..2 * minute).contains(at)), "{times:?}");
    assert_eq!(times.windows(2).map(|two| (two[1] - two[0]) / SECOND).max(), Some(20));
    assert!(trace.calls.iter().all(|call| call.duration == 2 * SECOND));
    let wrong = read("HashApp,HashFunction,1\na,f,0.5\n").unwrap_err().report().to_string();
    assert!(wrong.contains("`1` is `0.5`, expected a number of calls"), "{wrong}");
    assert!(read("HashApp,HashFunction,Trigger\na,f,http\n").is_err(), "it has no minutes");
    let many = format!("HashApp,HashFunction,1\na,f,{}\n", u64::MAX);
    assert!(read(many).unwrap_err().report().to_string().contains("more than 100000000 calls"));
}

#[test]
fn one_name_with_two_limits_is_two_functions() {
    let trace = read(format!("{FAASNET}0,f,0,py,128\n1,f,0,py,256\n2,f,0,py,128\n")).unwrap();
    let functions: Vec<_> = trace.calls.iter().map(|call| call.function).collect();
    assert_eq!(functions, [0, 1, 0]);
}

#[test]
fn what_is_not_as_expected_is_refused_with_its_line() {
    let azure = |line: &str| format!("{AZURE}a,f,1,1\n\n{line}\n");
    let faasnet = |line: &str| format!("{FAASNET}{line}\n");
    let cases: [(Vec<u8>, usize, &str); 22] = [
        (b"".to_vec(), 1, "it is empty, expected the columns __time__"),
        (b"\n\n".to_vec(), 1, "it is empty"),
        (AZURE.into(), 1, "no calls below the header"),
        (b"time,name\n1,f\n".to_vec(), 1, "the header is `time,name`, expected the columns"),
        (b"a,f,1,1\n".to_vec(), 1, "the header is `a,f,1,1`"),
        (azure("a,f,1").into(), 4, "it has 3 fields, expected 4"),
        (azure("a,f,1,1,1").into(), 4, "it has 5 fields, expected 4"),
        (azure("a,f,x,1").into(), 4, "`end_timestamp` is `x`, expected seconds from 0"),
        (azure("a,f,,1").into(), 4, "`end_timestamp` is ``"),
        (azure("a,f,NaN,1").into(), 4, "`end_timestamp` is `NaN`"),
        (azure("a,f,inf,1").into(), 4, "`end_timestamp` is `inf`"),
        (azure("a,f,-1,1").into(), 4, "`end_timestamp` is `-1`"),
        (azure("a,f,1,-0.5").into(), 4, "`duration` is `-0.5`"),
        (azure("a,f,1e300,1").into(), 4, "`end_timestamp` is `1e300`"),
        (azure(",f,1,1").into(), 4, "`app` is empty, expected a name"),
        (azure("\"a,f,1,1").into(), 4, "a quote is open at the end of the line"),
        (azure("a\"b,f,1,1").into(), 4, "does not begin with one"),
        (azure("\"a\"b,f,1,1").into(), 4, "`b` follows a closing quote"),
        ([azure("").as_bytes(), b"\xff,f,1,1"].concat(), 5, "it is not UTF-8"),
        (faasnet("0,f,0,py,0").into(), 2, "`memoryMB` is `0`, expected MB above 0"),
        (faasnet("0,f,none,py,128").into(), 2, "`latency` is `none`"),
        (faasnet(&"x".repeat(2 << 20)).into(), 2, "more than 1048576 bytes"),
    ];
    for (text, line, what) in cases {
        let error = read(&text).unwrap_err();
        let Error::Trace { line: found, .. } = &error else { panic!("{error:?}") };
        let shown = error.report().to_string();
        assert!(*found == line && shown.contains(what), "{shown}");
        assert!(shown.starts_with("error[SM-0106]: the trace cannot be read: "), "{shown}");
        assert!(shown.contains(&format!("--> trace.csv:{line}")), "{shown}");
    }
}

#[test]
fn a_trace_of_decades_is_refused() {
    let refused = read(format!("{AZURE}a,f,1,1\na,f,2e9,1\n"));
    assert!(matches!(refused, Err(Error::Setting(_))), "{refused:?}");
}

#[test]
fn synthetic_calls_come_at_the_rates_of_the_paper() {
    let trace = Trace::synthetic(Profile::Iot, 4, TWO, 11).unwrap();
    let rate = |minute: u64| {
        let minute_of = |call: &&Arrival| call.at / (60 * SECOND) == minute;
        trace.calls.iter().filter(minute_of).count() as f64 / 60.0
    };
    for (minute, low, high) in
        [(5, 8.0, 12.0), (20, 285.0, 415.0), (35, 8.0, 12.0), (41, 90.0, 110.0), (45, 380.0, 420.0)]
    {
        assert!((low..high).contains(&rate(minute)), "{minute}: {}", rate(minute));
    }
    let takes = |call: &Arrival| (SECOND * 3 / 2..=SECOND * 5 / 2).contains(&call.duration);
    assert!(trace.calls.iter().all(takes));
    let of = |function| trace.calls.iter().filter(|call| call.function == function).count() as f64;
    assert!((1.8..2.2).contains(&(of(0) / of(1))), "the second has half of the calls");
    let gaming = Trace::synthetic(Profile::Gaming, 1, TWO, 11).unwrap();
    assert!((10_000..30_000).contains(&gaming.calls.len()));
    assert!(Trace::synthetic(Profile::Iot, 0, TWO, 11).is_err());
}

proptest! {
    /// Arbitrary bytes are read or refused.
    #[test]
    fn any_bytes_are_read_or_refused(
        header in prop_oneof![Just(""), Just(AZURE), Just(FAASNET)],
        text in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..200),
            "[af01.,\"\n-]{0,200}".prop_map(String::into_bytes),
            "([ab],f,[0-9]{1,9},[0-9]\n){0,9}".prop_map(String::into_bytes),
        ],
    ) {
        if let Ok(trace) = read([header.as_bytes(), &text].concat()) {
            prop_assert!(trace.calls.is_sorted_by_key(|call| call.at));
            prop_assert_eq!(trace.calls[0].at, 0);
        }
    }
}

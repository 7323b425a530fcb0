//! Compares the rates of flows with progressive filling, in which all rates grow together, and
//! those of a link stop when the link is full.

use proptest::prelude::*;

use crate::model::Links;

#[derive(Clone, Debug)]
struct Case {
    ups: Vec<u32>,
    downs: Vec<u32>,
    /// Each flow's sender, receiver and number of copies, and whether it stops again.
    flows: Vec<(usize, usize, u32, bool)>,
}

fn case() -> impl Strategy<Value = Case> {
    let rates = || prop::collection::vec(1_u32..50, 1..8);
    (rates(), rates()).prop_flat_map(|(ups, downs)| {
        let flow = (0..ups.len(), 0..downs.len(), 1_u32..4, any::<bool>());
        let flows = prop::collection::vec(flow, 1..30);
        (Just(ups), Just(downs), flows).prop_map(|(ups, downs, flows)| Case { ups, downs, flows })
    })
}

/// The rates of flows by progressive filling. Receivers are numbered after senders.
fn filled(rates: &[f64], flows: &[(usize, usize, f64)]) -> Vec<f64> {
    let mut rest = rates.to_vec();
    let mut done = vec![None; flows.len()];
    let copies = |link: usize, flow: &(usize, usize, f64)| match link {
        _ if link == flow.0 => flow.2,
        _ if link == flow.1 => 1.0,
        _ => 0.0,
    };
    let mut level = 0.0;
    while done.contains(&None) {
        let load = |link: usize| -> f64 {
            let open = flows.iter().zip(&done).filter(|(_, done)| done.is_none());
            open.map(|(flow, _)| copies(link, flow)).sum()
        };
        let room = |link: usize| rest[link] / load(link);
        let busy: Vec<_> = (0..rates.len()).filter(|&link| load(link) > 0.0).collect();
        let step = busy.iter().map(|&link| room(link)).fold(f64::INFINITY, f64::min);
        let full: Vec<_> = busy.iter().filter(|&&link| room(link) <= step * (1.0 + 1e-9)).collect();
        let loads: Vec<_> = (0..rates.len()).map(load).collect();
        let stop: Vec<_> =
            flows.iter().map(|flow| full.iter().any(|&&link| copies(link, flow) > 0.0)).collect();
        level += step;
        rest.iter_mut().zip(loads).for_each(|(rest, load)| *rest -= step * load);
        for (done, stop) in done.iter_mut().zip(stop) {
            if stop && done.is_none() {
                *done = Some(level);
            }
        }
    }
    done.into_iter().flatten().collect()
}

fn agree(links: &Links, rates: &[f64], flows: &[(u32, (usize, usize, f64))]) {
    let expected = filled(rates, &flows.iter().map(|(_, flow)| *flow).collect::<Vec<_>>());
    for ((flow, ends), expected) in flows.iter().zip(expected) {
        let found = links.rate(*flow);
        assert!((found - expected).abs() < 1e-6 * expected, "{ends:?}: {found}, not {expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn rates_are_those_of_progressive_filling(case in case()) {
        let rates: Vec<f64> = case.ups.iter().chain(&case.downs).map(|&rate| f64::from(rate)).collect();
        let mut links = Links::default();
        let ids: Vec<u32> = rates.iter().map(|&rate| links.link(rate)).collect();
        let mut flows = Vec::new();
        let mut changed = Vec::new();
        // One more flow each time, so that levels change from what they were.
        for &(up, down, copies, stops) in &case.flows {
            let down = case.ups.len() + down;
            let flow = links.flow(ids[up], ids[down], f64::from(copies));
            links.set_active(flow, true);
            flows.push((flow, (up, down, f64::from(copies)), stops));
            links.solve(&mut changed);
            let running: Vec<_> = flows.iter().map(|&(flow, ends, _)| (flow, ends)).collect();
            agree(&links, &rates, &running);
        }
        for &(flow, _, stops) in &flows {
            if stops {
                links.set_active(flow, false);
            }
        }
        links.solve(&mut changed);
        let running: Vec<_> =
            flows.iter().filter(|flow| !flow.2).map(|&(flow, ends, _)| (flow, ends)).collect();
        agree(&links, &rates, &running);
        prop_assert!(flows.iter().all(|&(flow, _, stops)| !stops || links.rate(flow) == 0.0));
        prop_assert_eq!(links.check(&flows.iter().map(|flow| flow.0).collect::<Vec<_>>()), Ok(()));
    }
}

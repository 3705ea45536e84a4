use super::*;

fn rows(n: usize, max: usize, both: bool, far: i64) -> BTreeMap<i64, i64> {
    let row = |d| (d, bucket(n, max, both, d) as i64);
    (-far..=far).map(row).collect()
}

fn labels(rows: &BTreeMap<i64, i64>) -> BTreeMap<i64, usize> {
    rows.iter().map(|(d, r)| (*d, *r as usize)).collect()
}

fn t5(rows: &BTreeMap<i64, i64>, n: usize) -> Result<T5Bias, Miss> {
    T5Bias::of_rows(rows, n, 4)
}

#[test]
fn buckets_are_those_of_the_paper() {
    // n = 16 in each direction: 8 exact, and 128 / 8 = 2^4 over 8 buckets: each √2 another one.
    let far = [
        (0, 0),
        (7, 7),
        (8, 8),
        (11, 8),
        (12, 9),
        (16, 10),
        (127, 15),
        (128, 15),
        (900, 15),
    ];
    for (distance, want) in far {
        assert_eq!(bucket(32, 128, true, -distance), want, "{distance} before");
        let later = if distance > 0 { want + 16 } else { 0 };
        assert_eq!(bucket(32, 128, true, distance), later, "{distance} before");
        assert_eq!(bucket(32, 128, false, distance), 0, "causal {distance}");
    }
    let causal = [(15, 15), (16, 16), (20, 17), (128, 31), (4000, 31)];
    for (distance, want) in causal {
        assert_eq!(bucket(32, 128, false, -distance), want, "{distance}");
    }
}

#[test]
fn rows_determine_count_direction_and_maximum() {
    for (n, max) in [
        (8, 20),
        (32, 128),
        (32, 64),
        (64, 256),
        (320, 800),
        (16, 12),
    ] {
        for both in [false, true] {
            let seen = rows(n, max, both, 1100);
            let found = t5(&seen, n).unwrap();
            assert_eq!(
                (found.num_buckets, found.bidirectional),
                (n, both),
                "{n} {max}"
            );
            let again = found.max_distance.unwrap();
            assert_eq!(rows(n, again, both, 1100), seen, "{n} {max} as {again}");
            let range = found.max_distance_range.unwrap_or([again; 2]);
            assert!((range[0]..=range[1]).contains(&max), "{range:?} {max}");
            assert_eq!(
                found.bucket(-(max as i64) - 5),
                Some(bucket(n, max, both, -1000))
            );
        }
    }
    assert_eq!(
        t5(&rows(32, 128, true, 1100), 32).unwrap().max_distance,
        Some(128)
    );
}

#[test]
fn a_maximum_beyond_what_is_seen_is_a_range_or_unknown() {
    let found = t5(&rows(32, 128, false, 18), 32).unwrap();
    assert_eq!(
        found.max_distance, None,
        "no distance has left the exact ones"
    );
    let found = t5(&rows(32, 128, true, 60), 32).unwrap();
    let [least, most] = found.max_distance_range.unwrap();
    assert_eq!([least, most], [127, 128]);
    assert_eq!(found.max_distance, Some(128));
}

#[test]
fn other_rows_are_refused_or_read_as_what_they_are() {
    let good = rows(32, 128, true, 1100);
    let changed = |f: &dyn Fn(i64, i64) -> i64| good.iter().map(|(d, r)| (*d, f(*d, *r))).collect();
    let cases: [(&str, BTreeMap<i64, i64>); 6] = [
        (
            "directions trade places",
            good.iter().map(|(d, r)| (-d, *r)).collect(),
        ),
        ("rows moved by one", changed(&|_, r| r + 1)),
        (
            "distances moved by one",
            good.iter().map(|(d, r)| (d + 1, *r)).collect(),
        ),
        (
            "one bucket merged",
            changed(&|_, r| if r == 5 { 4 } else { r }),
        ),
        (
            "another last bucket",
            changed(&|d, r| if d < -500 { 14 } else { r }),
        ),
        ("the distance itself", changed(&|d, _| d)),
    ];
    for (name, rows) in cases {
        let why = t5(&rows, 32).unwrap_err().to_string();
        assert_eq!(why, "the rows are not those of 32 buckets", "{name}");
    }
    let why = t5(&good, 30).unwrap_err().to_string();
    assert_eq!(why, "the rows are not those of 30 buckets");
    let nearer = t5(&rows(32, 100, true, 1100), 32).unwrap();
    assert_eq!(nearer.max_distance, Some(100));
}

#[test]
fn numbers_alone_determine_the_buckets_that_are_seen() {
    for (n, max, both) in [
        (8, 20, true),
        (32, 128, true),
        (8, 20, false),
        (32, 128, false),
    ] {
        let seen = labels(&rows(n, max, both, 200));
        let found = T5Bias::of_labels(&seen, 4).unwrap();
        assert_eq!((found.num_buckets, found.bidirectional), (n, both));
        assert_eq!(found.max_distance, Some(max));
    }
    let causal: BTreeMap<i64, usize> = labels(&rows(32, 128, false, 200))
        .into_iter()
        .filter(|(d, _)| *d <= 0)
        .collect();
    let found = T5Bias::of_labels(&causal, 4).unwrap();
    assert_eq!((found.num_buckets, found.max_distance), (32, Some(128)));
}

#[test]
fn runs_that_are_no_buckets_are_refused() {
    let far = 60i64;
    type Case = (&'static str, fn(i64) -> usize);
    let cases: [Case; 5] = [
        ("pairs", |d| (d.abs() / 2) as usize),
        ("all distances apart", |d| (d + 60) as usize),
        ("a run in the middle", |d| {
            if (20..30).contains(&-d) {
                20
            } else {
                (d + 60) as usize
            }
        }),
        ("runs that shrink", |d| {
            60 - bucket(32, 128, false, d.abs() - 60)
        }),
        ("a pair that returns", |d| bucket(32, 128, false, d) % 20),
    ];
    let reasons = [
        "the runs of equal numbers",
        "no two distances share",
        "the runs of equal numbers",
        "the runs of equal numbers",
        "the runs of equal numbers",
    ];
    for ((name, label), reason) in cases.into_iter().zip(reasons) {
        let labels = (-far..=0).map(|d| (d, label(d))).collect();
        let why = T5Bias::of_labels(&labels, 1).unwrap_err().why;
        assert!(why.starts_with(reason), "{name}: {why}");
    }
}

#[test]
fn a_whole_logarithm_that_falls_short_in_its_last_digit_is_read() {
    let mut short = rows(32, 128, true, 1100);
    for distance in [16, 32, 64] {
        for (sign, first) in [(-1, 0), (1, 16)] {
            let row = short.get_mut(&(sign * distance)).unwrap();
            assert_eq!(*row - first - 8, 2 * (distance / 8).ilog2() as i64);
            *row -= 1;
        }
    }
    let found = t5(&short, 32).unwrap();
    assert_eq!((found.max_distance, found.bidirectional), (Some(128), true));
    // Between two whole ones, nothing is short.
    for distance in [-12, 23, 46, -128] {
        let mut other = short.clone();
        *other.get_mut(&distance).unwrap() -= 1;
        assert!(t5(&other, 32).is_err(), "{distance}");
    }
}

#[test]
fn divided_distances_are_read_with_what_they_are_divided_by() {
    for (n, max, both) in [(32, 128, true), (32, 128, false), (8, 20, true)] {
        for factor in [2, 3, 8] {
            let seen: BTreeMap<i64, i64> = (-1100..=1100_i64)
                .map(|d| (d, bucket(n, max, both, d / factor) as i64))
                .collect();
            let found = t5(&seen, n).unwrap();
            let read = (found.factor, found.max_distance, found.bidirectional);
            assert_eq!(read, (factor as usize, Some(max), both), "{n} {factor}");
            assert_eq!(found.bucket(-7), usize::try_from(seen[&-7]).ok());
        }
    }
    let plain = t5(&rows(32, 128, true, 1100), 32).unwrap();
    assert_eq!(plain.factor, 1);
    let longer = plain.stretch(2.0).and_then(|b| b.stretch(3.0)).unwrap();
    assert_eq!(longer.params()["factor"], 6);
    for factor in [1.5, 0.0, -2.0, f64::NAN, 1e9] {
        assert!(plain.stretch(factor).is_none(), "{factor}");
    }
}

#[test]
fn distances_that_are_rounded_otherwise_are_not_divided_ones() {
    let divided = |by: &dyn Fn(i64) -> i64| -> BTreeMap<i64, i64> {
        let row = |d: i64| bucket(32, 128, true, by(d)) as i64;
        (-1100..=1100).map(|d| (d, row(d))).collect()
    };
    assert!(t5(&divided(&|d| d / 2), 32).is_ok(), "control");
    let cases: [(&str, &dyn Fn(i64) -> i64); 3] = [
        ("down", &|d| d.div_euclid(2)),
        ("to the nearest", &|d| (d as f64 / 2.0).round() as i64),
        ("away from zero", &|d| (d + d.signum()) / 2),
    ];
    for (name, by) in cases {
        let read = t5(&divided(by), 32).map(|found| found.factor);
        assert!(read.is_err(), "{name}: {read:?}");
    }
}

